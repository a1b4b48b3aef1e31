package store

import (
	"context"
	"time"
)

// Tx is an open transaction of a store. Each store package makes its own, and
// gives users typed access to the driver's transaction behind it.
type Tx interface {
	// StoreKind is the Kind of the store it belongs to.
	StoreKind() string
}

// TxOptions say how a store opens a transaction.
type TxOptions struct {
	// Lazy lets the store open the database transaction at its first use. It
	// is set for transactional handlers, which may work long before they write.
	Lazy bool
}

// Transactor opens transactions and recognises them.
type Transactor interface {
	// Transact runs fn in a transaction: it commits when fn returns nil and
	// rolls back when fn returns an error, which it then returns unchanged, or
	// when fn panics, which it then lets pass. The context that fn gets carries
	// the transaction (see [WithTx]).
	//
	// nil means committed. An error that matches [ErrOutcomeUnknown] means that
	// the commit may have happened. Any other error means not committed. When
	// the context ends before the commit has begun, nothing is committed.
	//
	// A store may run fn again after a transient conflict if its database asks
	// for that (MongoDB); the last run counts.
	Transact(ctx context.Context, o TxOptions, fn func(ctx context.Context, tx Tx) error) error

	// CheckTx reports whether tx is an open transaction of this store's
	// database: nil, [ErrForeignTx] or [ErrTxDone].
	CheckTx(ctx context.Context, tx Tx) error
}

// Appender writes events.
type Appender interface {
	// Append writes events and their deliveries in the transaction. Events of
	// one key get ascending sequences in the order given, and sequence order is
	// commit order across transactions. An id that exists already adds only
	// deliveries for handlers that the event never had one for, with the
	// payload, key and sequence of the first append. The same id twice in one
	// call is treated the same way.
	//
	// It costs a number of round trips that does not depend on the number of
	// events. On an error the transaction is still usable unless the database
	// itself has aborted it.
	Append(ctx context.Context, tx Tx, events []NewEvent, now time.Time) ([]Appended, error)
}

type txKey struct{}

// txList is a linked list in the context, the innermost transaction first.
type txList struct {
	tx    Tx
	outer *txList
}

// WithTx returns a context that carries tx as its innermost transaction.
// Store packages call it; users get such a context from the bus.
func WithTx(ctx context.Context, tx Tx) context.Context {
	outer, _ := ctx.Value(txKey{}).(*txList)
	return context.WithValue(ctx, txKey{}, &txList{tx: tx, outer: outer})
}

// WithoutTx returns a context that carries no transaction, for work that does
// not belong to the transaction of whoever starts it.
func WithoutTx(ctx context.Context) context.Context {
	if list, _ := ctx.Value(txKey{}).(*txList); list == nil {
		return ctx
	}
	return context.WithValue(ctx, txKey{}, (*txList)(nil))
}

// TxsFrom returns the transactions that the context carries, the innermost
// first. It is nil when there are none.
func TxsFrom(ctx context.Context) []Tx {
	var txs []Tx
	list, _ := ctx.Value(txKey{}).(*txList)
	for ; list != nil; list = list.outer {
		txs = append(txs, list.tx)
	}
	return txs
}

// Wrapped is implemented by transactions that wrap a driver's transaction: two
// values that wrap the same one stand for the same transaction.
type Wrapped interface {
	// Underlying returns the driver's transaction, a comparable value.
	Underlying() any
}

// Underlying returns what identifies a transaction: the driver's transaction
// that it wraps, or the value itself.
func Underlying(tx Tx) any {
	if w, ok := tx.(Wrapped); ok {
		return w.Underlying()
	}
	return tx
}
