package memstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

var _ store.Tx = (*Transaction)(nil)

// Transaction is an open transaction. What is appended and completed in it is
// staged, and applied in one step by [Transaction.Commit]: what exists already,
// the sequences, and whether leases still hold are decided then. It is safe for
// concurrent use.
type Transaction struct {
	store *Store

	mu   sync.Mutex
	done bool
	work work
}

// work is what a transaction has to do in the end.
type work struct {
	steps      []staged
	onCommit   []func()
	onRollback []func()
}

// undo runs what hangs on a rollback.
func (w work) undo() {
	for _, f := range slices.Backward(w.onRollback) {
		f()
	}
}

// staged is one step of a transaction: an append or a completion.
type staged struct {
	events     []store.NewEvent
	completion *stagedCompletion
	now        int64
}

type stagedCompletion struct {
	store  *Store
	worker *worker
	owner  *owner
	lease  store.Lease
}

// Tx returns the innermost transaction of a memory store in the context. It
// panics when there is none; see [TxFrom].
func Tx(ctx context.Context) *Transaction {
	tx, ok := TxFrom(ctx)
	if !ok {
		panic("memstore.Tx: the context carries no transaction of a memory store; " +
			"it must be the one that Transact, Bus.Transaction or a transactional handler passes")
	}
	return tx
}

// TxFrom returns the innermost transaction of a memory store in the context,
// finished or not, and whether there is one.
func TxFrom(ctx context.Context) (*Transaction, bool) {
	for _, tx := range store.TxsFrom(ctx) {
		if tx, ok := tx.(*Transaction); ok {
			return tx, true
		}
	}
	return nil, false
}

// Begin opens a transaction. The caller must end it with [Transaction.Commit]
// or [Transaction.Rollback].
func (s *Store) Begin() *Transaction { return &Transaction{store: s} }

// StoreKind returns "memory".
func (*Transaction) StoreKind() string { return Kind }

// OnCommit registers a function that runs when the transaction commits, in the
// same step as the commit: whoever sees an event of the transaction sees its
// effects. Functions run in the order in which they were registered. They must
// not call the store, nor the transaction.
func (tx *Transaction) OnCommit(f func()) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.work.onCommit = append(tx.work.onCommit, f)
}

// OnRollback registers a function that runs when the transaction is rolled
// back or fails to commit. The last registered runs first.
func (tx *Transaction) OnRollback(f func()) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.work.onRollback = append(tx.work.onRollback, f)
}

// Commit applies the transaction. It is over then in any case: after an error
// it is rolled back.
//
// The errors are [store.ErrTxDone], [store.ErrLeaseLost] when a completion's
// lease no longer holds, and [store.ErrTimeout] when the context has ended.
func (tx *Transaction) Commit(ctx context.Context) error {
	const op = "commit transaction"
	work, ok := tx.finish()
	if !ok {
		return store.NewError(op, store.ErrTxDone, "", nil)
	}
	if err := alive(ctx, op); err != nil {
		work.undo()
		return err
	}
	if err := tx.apply(op, work); err != nil {
		work.undo()
		return err
	}
	// A failure from here on is a reply that got lost.
	if err := tx.store.step("committed", tx); err != nil {
		return lost(op, err)
	}
	for _, step := range work.steps {
		if c := step.completion; c != nil {
			c.worker.settled(c.lease)
		}
	}
	return nil
}

// Rollback ends the transaction without a trace. The error is
// [store.ErrTxDone] when it is over already.
func (tx *Transaction) Rollback() error {
	work, ok := tx.finish()
	if !ok {
		return store.NewError("roll back transaction", store.ErrTxDone, "", nil)
	}
	work.undo()
	return nil
}

// finish ends the transaction and returns what is to be done or undone. ok is
// false when it was over already.
func (tx *Transaction) finish() (w work, ok bool) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return work{}, false
	}
	tx.done = true
	return tx.work, true
}

// apply does what was staged, or nothing.
func (tx *Transaction) apply(op string, work work) error {
	db := tx.store.db
	db.mu.Lock()
	defer db.mu.Unlock()
	deliveries := make([]*delivery, len(work.steps))
	for i, step := range work.steps {
		if c := step.completion; c != nil {
			if deliveries[i] = db.fenced(c.store, c.owner, c.lease); deliveries[i] == nil {
				return store.NewError(op, store.ErrLeaseLost, "", nil)
			}
		}
	}
	before := db.changes
	for i, step := range work.steps {
		if step.completion != nil {
			db.unlist(deliveries[i])
			db.complete(tx.store, deliveries[i], step.now)
			continue
		}
		for _, e := range step.events {
			db.append(tx.store, e, step.now)
		}
	}
	for _, f := range work.onCommit {
		f()
	}
	if db.changes != before {
		db.wake()
	}
	return nil
}

// stage adds a step to an open transaction.
func (tx *Transaction) stage(op string, step staged) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return store.NewError(op, store.ErrTxDone, "", nil)
	}
	tx.work.steps = append(tx.work.steps, step)
	return nil
}

// Transact runs fn in a transaction and commits it; see [store.Transactor].
func (s *Store) Transact(
	ctx context.Context, _ store.TxOptions, fn func(ctx context.Context, tx store.Tx) error,
) error {
	if err := alive(ctx, "begin transaction"); err != nil {
		return err
	}
	tx := s.Begin()
	defer func() {
		// Only a panic or runtime.Goexit leaves it open.
		if work, open := tx.finish(); open {
			work.undo()
		}
	}()
	if err := fn(store.WithTx(ctx, tx), tx); err != nil {
		return errorOf(err, tx.Rollback())
	}
	return tx.Commit(ctx)
}

// errorOf is err: that fn rolled back by itself is no second failure.
func errorOf(err, rollback error) error {
	if rollback == nil || errors.Is(rollback, store.ErrTxDone) {
		return err
	}
	return errors.Join(err, rollback)
}

// CheckTx reports whether tx is an open transaction on this store's data, which
// it is also when another instance began it.
func (s *Store) CheckTx(_ context.Context, tx store.Tx) error {
	_, err := s.check("check transaction", tx)
	return err
}

func (s *Store) check(op string, tx store.Tx) (*Transaction, error) {
	own, ok := tx.(*Transaction)
	if !ok || own == nil || own.store.db != s.db {
		return nil, store.NewError(op, store.ErrForeignTx, "", nil)
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.done {
		return nil, store.NewError(op, store.ErrTxDone, "", nil)
	}
	return own, nil
}

// CompleteTx completes the delivery with the transaction; see [store.Settler].
// The lease is checked here and by the commit.
func (s *Store) CompleteTx(ctx context.Context, tx store.Tx, owner string, l store.Lease, now time.Time) error {
	const op = "complete in transaction"
	if !l.Token.Valid() {
		return store.NewError(op, store.ErrInvalidToken, "", lane.ErrToken)
	}
	if err := alive(ctx, op); err != nil {
		return err
	}
	own, err := s.check(op, tx)
	if err != nil {
		return err
	}
	w := s.worker(owner)
	c := &stagedCompletion{store: s, worker: w, owner: w.current(), lease: l}
	s.db.mu.Lock()
	d := s.db.fenced(s, c.owner, l)
	s.db.mu.Unlock()
	if d == nil || own.completes(l) {
		return store.NewError(op, store.ErrLeaseLost, "", nil)
	}
	return own.stage(op, staged{completion: c, now: millis(now)})
}

// completes reports whether the transaction completes the delivery already.
func (tx *Transaction) completes(l store.Lease) bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return slices.ContainsFunc(tx.work.steps, func(s staged) bool {
		return s.completion != nil &&
			s.completion.lease.EventID == l.EventID && s.completion.lease.Handler == l.Handler
	})
}
