// Package memstore is the store that keeps everything in memory: for tests,
// examples, and services whose events may die with the process.
//
// It is the reference of the contract in package store. It does in one process
// what the other stores do in a database, in the same steps: a claim takes
// over from expired owners, renews its lease, takes lanes, reads, picks,
// records and hands back, and between two steps anything may happen. The
// exhaustive check of the lane protocol drives this code.
//
// [Store.Instance] returns a second store on the same data, which behaves like
// a store of another process.
//
//	s := memstore.New(memstore.Config{})
//	err := s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
//		memstore.Tx(ctx).OnCommit(func() { orders["o-1"] = order })
//		_, err := s.Append(ctx, tx, events, now)
//		return err
//	})
package memstore
