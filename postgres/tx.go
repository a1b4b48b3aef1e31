package postgres

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/store"
)

// transaction is a [store.Tx] of this package.
type transaction struct {
	// owner is the store that opened it, or nil for one that a caller opened.
	owner *Store
	op    string

	mu sync.Mutex
	// conn has the transaction of one of ours on the pool; it is nil before the
	// first use of a lazy one, and with [Config].SQL.
	conn *pgxpool.Conn
	// native or standard is the transaction of the driver.
	native   pgx.Tx
	standard SQLTx
	// held has the transaction of one of ours of database/sql.
	held *heldConn
	// guard is the native one of a transaction of ours, and late what is kept for it.
	guard *guard
	late  *late
	// sessions of a caller's transaction, by store.
	sessions map[*Store]*session
	own      *session
	refused  error // when it could not begin
	done     bool
	broken   error // set when a part of an append may be missing
	// adds says that it has added deliveries.
	adds bool
	// doubts are what to do when nobody knows whether it was committed.
	doubts []func()
}

// StoreKind returns "postgres".
func (*transaction) StoreKind() string { return Kind }

// Underlying returns the driver's transaction.
func (t *transaction) Underlying() any {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.standard != nil && reflect.ValueOf(t.standard).Comparable():
		return t.standard
	case t.native != nil && reflect.ValueOf(t.native).Comparable():
		return t.native
	default:
		return t
	}
}

// Join makes a pgx transaction that the caller opened usable for the store and
// the bus, also one that pgx made of a savepoint. The caller commits it. It must
// be of the store's database; any other one is refused with [store.ErrForeignTx],
// and stays usable. An error of the database aborts the whole transaction, as
// always in PostgreSQL.
func Join(tx pgx.Tx) store.Tx {
	if isNil(tx) {
		tx = nil
	}
	return &transaction{native: tx}
}

func isNil(tx any) bool {
	v := reflect.ValueOf(tx)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// JoinSQL is [Join] for a transaction of database/sql. Join a transaction once and
// use the result for all that is published in it: it remembers that the database
// is the right one.
func JoinSQL(tx SQLTx) store.Tx { return &transaction{standard: plainTx(tx)} }

// plainTx returns the *sql.Tx in a type that is made of one. Some of these have
// methods of the same names that read statements in their own way: a bun.Tx puts
// values in for question marks.
func plainTx(tx SQLTx) SQLTx {
	if isNil(tx) {
		return nil
	}
	v := reflect.Indirect(reflect.ValueOf(tx))
	if v.Kind() != reflect.Struct {
		return tx
	}
	field, ok := v.Type().FieldByName("Tx")
	if !ok || !field.Anonymous || len(field.Index) != 1 || field.Type != reflect.TypeFor[*sql.Tx]() {
		return tx
	}
	if plain, ok := reflect.TypeAssert[*sql.Tx](v.FieldByIndex(field.Index)); ok && plain != nil {
		return plain
	}
	return tx
}

// Tx returns the innermost pgx transaction of the context. With two stores,
// [Store.Tx] tells them apart. It panics when the context carries none; see
// [TxFrom].
//
// A transaction that was opened lazily begins now. If it can't begin, every
// statement on the returned transaction fails with the error that says why, and
// so does the commit.
func Tx(ctx context.Context) pgx.Tx {
	tx, ok := TxFrom(ctx)
	if !ok {
		panic("postgres.Tx: the context carries no pgx transaction; " +
			"it must be the one that Bus.Transaction, Store.Transact or a transactional handler passes, " +
			"and with Config.SQL it is one of database/sql: use SQLTxFrom")
	}
	return tx
}

// TxFrom is [Tx] that reports whether there is one instead of panicking.
func TxFrom(ctx context.Context) (pgx.Tx, bool) {
	for _, tx := range store.TxsFrom(ctx) {
		if t, ok := tx.(*transaction); ok && t != nil {
			return t.pgx(ctx)
		}
	}
	return nil, false
}

// SQLTxFrom returns the innermost transaction of the context if it is one of
// database/sql: one that was joined by [JoinSQL], or a *sql.Tx that the bus opened
// on [Config].SQL.
func SQLTxFrom(ctx context.Context) (SQLTx, bool) {
	for _, tx := range store.TxsFrom(ctx) {
		if t, ok := tx.(*transaction); ok && t != nil {
			return t.sql(ctx)
		}
	}
	return nil, false
}

// Tx returns the innermost pgx transaction of the context that belongs to the
// database of this store. It panics like the function [Tx] when there is none.
func (s *Store) Tx(ctx context.Context) pgx.Tx {
	for _, tx := range store.TxsFrom(ctx) {
		t, ok := tx.(*transaction)
		if !ok || t == nil {
			continue
		}
		err := s.check(ctx, "find transaction", t)
		if err != nil && (errors.Is(err, store.ErrForeignTx) || errors.Is(err, store.ErrTxDone)) {
			continue
		}
		if native, ok := t.pgx(ctx); ok {
			return native
		}
	}
	panic("postgres.Store.Tx: the context carries no open pgx transaction of this store")
}

// pgx returns the transaction, and begins it when it is lazy.
func (t *transaction) pgx(ctx context.Context) (pgx.Tx, bool) {
	if t.owner == nil {
		return t.native, t.native != nil
	}
	if t.owner.cfg.SQL != nil {
		return nil, false
	}
	if _, err := t.begin(ctx); err != nil {
		return refusal{err}, true
	}
	return t.native, true
}

func (t *transaction) sql(ctx context.Context) (SQLTx, bool) {
	if t.owner == nil {
		return t.standard, t.standard != nil
	}
	if t.owner.cfg.SQL == nil {
		return nil, false
	}
	if _, err := t.begin(ctx); err != nil {
		return refusedSQL{err}, true
	}
	return t.standard, true
}

// begin returns the session of a transaction of ours.
func (t *transaction) begin(ctx context.Context) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.done:
		return nil, store.NewError(t.op, store.ErrTxDone, "", nil)
	case t.refused != nil:
		return nil, t.refused
	case t.own != nil:
		return t.own, nil
	}
	q, err := t.open(ctx)
	if err != nil {
		t.refused = translate(t.op, err)
		return nil, t.refused
	}
	t.own = &session{querier: q, s: t.owner, private: true}
	return t.own, nil
}

// open opens a transaction of ours, at the isolation level that the store needs
// whatever the default of the role or the database is.
func (t *transaction) open(ctx context.Context) (querier, error) {
	s := t.owner
	if s.cfg.SQL != nil {
		return t.openSQL(ctx)
	}
	var q querier
	err := s.retry(ctx, t.op, func(ctx context.Context) error {
		conn, err := s.acquireFrom(ctx, t.op, s.pool)
		if err != nil {
			return err
		}
		begin, err := s.beginText(ctx, conn)
		if err == nil {
			var tx pgx.Tx
			if tx, err = conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin}); err == nil {
				t.guard = &guard{Tx: tx, t: t}
				t.native, t.conn, q = t.guard, conn, native{tx}
				return nil
			}
		}
		s.release(ctx, conn, err)
		return translate(t.op, err)
	})
	s.meter.begun()
	return q, err
}

// end ends a transaction of ours that was not committed, and gives its connection
// back.
func (t *transaction) end(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		ctx, cancel := lasting(ctx)
		defer cancel()
		switch {
		case t.guard != nil:
			_ = t.guard.Tx.Rollback(ctx) // A connection on which it fails is closed.
		case t.standard != nil:
			defer t.held.within(ctx)()
			_ = t.standard.Rollback() // The same.
		}
	}
	t.done = true
	if t.held != nil {
		t.held.release()
		t.held = nil
	}
	if t.conn != nil {
		t.owner.release(ctx, t.conn, t.broken)
		t.conn = nil
	}
}

// Transact runs fn in a transaction; see [store.Transactor]. It is one of pgx on
// the pool, or with [Config].SQL one of database/sql; READ COMMITTED in any case.
// fn runs once. It holds one connection of the pool.
func (s *Store) Transact(
	ctx context.Context, o store.TxOptions, fn func(ctx context.Context, tx store.Tx) error,
) error {
	const op = "run transaction"
	if err := ended(ctx, op); err != nil {
		return err
	}
	t := &transaction{owner: s, op: op}
	defer t.end(ctx)
	if !o.Lazy {
		if _, err := t.begin(ctx); err != nil {
			return err
		}
	}
	if err := fn(store.WithTx(ctx, t), t); err != nil {
		return err
	}
	return t.commit(ctx)
}

func (t *transaction) commit(ctx context.Context) error {
	if err := ended(ctx, t.op); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.refused != nil:
		return t.refused
	case t.broken != nil:
		return translate(t.op, t.broken)
	case t.own == nil:
		t.done = true
		return nil
	}
	if t.conn != nil && t.conn.Conn().PgConn().TxStatus() == 'I' {
		t.done = true
		return &store.Error{
			Op: t.op, Class: store.ErrTxDone, Also: store.ErrOutcomeUnknown, Detail: "a statement inside of it has ended it",
		}
	}
	t.owner.crash("committing")
	err := t.commitDriver(ctx)
	_, typed := errors.AsType[*store.Error](err)
	switch {
	case err == nil:
		t.done = true
	case typed:
		return translate(t.op, err) // What was kept was refused.
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		// fn has ended the driver's transaction by itself.
		t.done = true
		return &store.Error{Op: t.op, Class: store.ErrTxDone, Also: store.ErrOutcomeUnknown, Err: err}
	case errors.Is(err, pgx.ErrTxCommitRollback):
		t.done = true
		return store.NewError(t.op, store.ErrTxDone, "an earlier error had aborted the transaction; nothing was committed", err)
	case isRefusal(err), pgconn.SafeToRetry(err):
		return refused(t.op, err, t.adds && t.owner.cfg.NotifyInTransaction)
	default:
		t.broken = err // for the connection
		for _, f := range t.doubts {
			f()
		}
		return uncertain(t.op, err)
	}
	t.owner.crash("committed")
	for _, f := range t.own.committed {
		f()
	}
	if t.adds {
		t.owner.notifier.tell(t.owner.notifier.published) //nolint:contextcheck // The notifier outlives the call.
	}
	return nil
}

func (t *transaction) commitDriver(ctx context.Context) error {
	ctx, cancel := lasting(ctx)
	defer cancel()
	if t.standard != nil {
		defer t.held.within(ctx)()
		return t.standard.Commit()
	}
	if t.late != nil {
		return t.commitLate(ctx)
	}
	return t.guard.Tx.Commit(ctx)
}

// appended notes that the transaction has added deliveries of the store.
func (t *transaction) appended(s *Store) {
	if t.owner == nil {
		s.notifier.tell(s.notifier.joined) // Nobody tells when the caller commits.
		return
	}
	t.adds = true
}
