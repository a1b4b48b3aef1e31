package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/relaybus-go/relaybus/store"
)

// transaction is a [store.Tx] of this package.
type transaction struct {
	// owner is the store that opened it, or nil for one that a caller opened.
	owner *Store
	op    string

	mu sync.Mutex
	// open is the database transaction of one of ours, once it has begun.
	open *writing
	// holds says that it has begun and not ended.
	holds atomic.Bool
	// joined is the one of a caller, and its sessions by store.
	joined   *sql.Tx
	sessions map[*Store]*session
	refused  *refusal // when it could not begin
	done     bool
	broken   error // set when a part of an append may be missing
}

// StoreKind returns "sqlite".
func (*transaction) StoreKind() string { return Kind }

// Join makes a transaction that the caller opened usable for the store and the
// bus: a *sql.Tx on [Store.DB], or on a handle of the caller's own that leads
// to the same file. The caller commits it. It must be a SQLite transaction, and
// should be an immediate one: see [Store.DB]. A transaction of another database
// is refused with [store.ErrForeignTx], and stays usable.
func Join(tx *sql.Tx) store.Tx { return &transaction{joined: tx} }

// Tx returns the innermost SQLite transaction of the context. With two SQLite
// stores, [Store.Tx] tells them apart. It panics when the context carries none;
// see [TxFrom].
//
// A transaction that was opened lazily begins now. If it can't begin, every
// statement on the returned transaction fails with the error that says why,
// and so does the commit.
func Tx(ctx context.Context) *sql.Tx {
	tx, ok := TxFrom(ctx)
	if !ok {
		panic("sqlite.Tx: the context carries no SQLite transaction; " +
			"it must be the one that Bus.Transaction, Store.Transact or a transactional handler passes")
	}
	return tx
}

// TxFrom is [Tx] that reports whether there is one instead of panicking.
func TxFrom(ctx context.Context) (*sql.Tx, bool) {
	for _, tx := range store.TxsFrom(ctx) {
		if t, ok := tx.(*transaction); ok {
			return t.handle(ctx), true
		}
	}
	return nil, false
}

// Tx returns the innermost transaction of the context that this store opened,
// or that was joined and belongs to its database. It panics like the function
// [Tx] when there is none, and not because the context has ended.
func (s *Store) Tx(ctx context.Context) *sql.Tx {
	for _, tx := range store.TxsFrom(ctx) {
		t, ok := tx.(*transaction)
		if !ok || t == nil {
			continue
		}
		// A joined one that can't be looked at is passed on: its statements
		// fail for the same reason.
		err := s.check(ctx, "find transaction", t)
		if err == nil || !errors.Is(err, store.ErrForeignTx) && !errors.Is(err, store.ErrTxDone) {
			return t.handle(ctx)
		}
	}
	panic("sqlite.Store.Tx: the context carries no open transaction of this store")
}

// handle returns the driver's transaction, and begins it when it is lazy.
func (t *transaction) handle(ctx context.Context) *sql.Tx {
	if t.owner == nil {
		return t.joined
	}
	if _, err := t.begin(ctx); err != nil {
		return t.refuse(ctx, err)
	}
	return t.open.tx
}

// refuse returns a transaction on which everything fails with the error.
func (t *transaction) refuse(ctx context.Context, err error) *sql.Tx {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return t.owner.endedTx(ctx)
	}
	if t.refused == nil {
		t.refused = newRefusal(still(ctx), err)
	}
	return t.refused.tx
}

// begin returns the session of a transaction of ours.
func (t *transaction) begin(ctx context.Context) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return nil, errFinished
	}
	if t.refused != nil {
		return nil, t.refused.err
	}
	if t.open != nil {
		return t.open.session, nil
	}
	open, err := t.owner.begin(ctx, t.op)
	if err != nil {
		return nil, err
	}
	t.open = open
	t.holds.Store(true)
	return open.session, nil
}

// end ends a transaction of ours that was not committed.
func (t *transaction) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
	t.holds.Store(false)
	if t.open != nil {
		t.open.rollback()
	}
	if t.refused != nil {
		t.refused.close()
	}
}

// Transact runs fn in a transaction; see [store.Transactor]. It waits for its
// turn up to [Config].BusyTimeout. fn runs once.
//
// What begins another transaction of the store inside of fn, such as a nested
// Transact, fails at once with [store.ErrInvalidArgument] when it is given fn's
// context; given another one, it waits up to [Config].BusyTimeout in vain. A
// lazy transaction stands in nobody's way before its first use.
func (s *Store) Transact(
	ctx context.Context, o store.TxOptions, fn func(ctx context.Context, tx store.Tx) error,
) error {
	const op = "run transaction"
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	t := &transaction{owner: s, op: op}
	defer t.end()
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
		return t.owner.translate(t.op, t.refused.err)
	case t.broken != nil:
		return t.owner.translate(t.op, t.broken)
	case t.open == nil:
		t.done = true
		return nil
	}
	t.done = true
	err := t.open.commit(t.op)
	if errors.Is(err, sql.ErrTxDone) {
		// fn has committed or rolled back the driver's transaction by itself.
		return &store.Error{Op: t.op, Class: store.ErrTxDone, Also: store.ErrOutcomeUnknown, Err: err}
	}
	return err
}

// CheckTx reports whether tx is an open transaction of this database; see
// [store.Transactor].
func (s *Store) CheckTx(ctx context.Context, tx store.Tx) error {
	const op = "check transaction"
	if err := ended(ctx, op); err != nil {
		return err
	}
	t, ok := tx.(*transaction)
	if !ok || t == nil {
		return store.NewError(op, store.ErrForeignTx, "", nil)
	}
	return s.check(ctx, op, t)
}

func (s *Store) check(ctx context.Context, op string, t *transaction) error {
	switch {
	case t.owner != nil && t.owner != s && !s.sameDatabase(t.owner):
		return store.NewError(op, store.ErrForeignTx, "", nil)
	case t.owner == nil:
		_, err := s.join(still(ctx), op, t)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return store.NewError(op, store.ErrTxDone, "", nil)
	}
	return nil
}

// sameDatabase reports whether another store of this process is on the same
// tables of the same file.
func (s *Store) sameDatabase(other *Store) bool {
	return s.cfg.Prefix == other.cfg.Prefix && (s.path == other.path || s.isFile(other.path))
}

// isFile reports whether the path leads to the file of the store. The id in the
// database does not tell that: a copy of the file has it, too.
func (s *Store) isFile(path string) bool {
	mine, err := os.Stat(filepath.FromSlash(s.path))
	if err != nil {
		return false
	}
	theirs, err := os.Stat(filepath.FromSlash(path))
	return err == nil && os.SameFile(mine, theirs)
}

// databaseID returns the random id that Setup gave the database.
func (s *Store) databaseID(ctx context.Context) (string, error) {
	if id := s.identity.Load(); id != nil {
		return *id, nil
	}
	err := s.read(ctx, "read database id", func(ctx context.Context, x *session) error {
		return s.learnIdentity(ctx, x)
	})
	if err != nil {
		return "", err
	}
	return *s.identity.Load(), nil
}

// sessionOf returns the session in which the store works inside tx, of a
// database with the schema that this library knows.
func (s *Store) sessionOf(ctx context.Context, op string, tx store.Tx) (*session, *transaction, error) {
	x, t, err := s.openSession(ctx, op, tx)
	if err == nil && t.owner != nil {
		err = s.translate(op, s.current(still(ctx), x))
	}
	if err != nil {
		return nil, nil, err
	}
	return x, t, nil
}

// openSession is sessionOf without the check of the schema.
func (s *Store) openSession(ctx context.Context, op string, tx store.Tx) (*session, *transaction, error) {
	if s.closed.Load() {
		return nil, nil, store.NewError(op, store.ErrClosed, "", nil)
	}
	t, ok := tx.(*transaction)
	if ok && t != nil && t.owner == nil {
		if err := ended(ctx, op); err != nil {
			return nil, nil, err
		}
		x, err := s.join(still(ctx), op, t)
		return x, t, err
	}
	if err := s.CheckTx(ctx, tx); err != nil {
		return nil, nil, s.translate(op, err)
	}
	x, err := t.begin(ctx)
	if err != nil {
		return nil, nil, s.translate(op, err)
	}
	return x, t, nil
}

// join checks a caller's transaction, once with success, and whether it is still
// open each time.
func (s *Store) join(ctx context.Context, op string, t *transaction) (*session, error) {
	if t.joined == nil {
		return nil, store.NewError(op, store.ErrTxDone, "the transaction is nil", nil)
	}
	mine, err := s.databaseID(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.sessions[s]
	if x != nil {
		return x, s.inside(ctx, op, t)
	}
	x = &session{s: s, tx: t.joined}
	var theirs string
	found, err := x.row(ctx, s.sql.getMeta, []any{&theirs}, metaIdentity)
	var file string
	if err == nil && found && theirs == mine {
		_, err = x.row(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'", []any{&file})
	}
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return nil, store.NewError(op, store.ErrTxDone, "", err)
	case err != nil && isTrouble(err):
		return nil, s.translate(op, err)
	case err != nil || !found || theirs != mine || !s.isFile(file):
		return nil, store.NewError(op, store.ErrForeignTx, "", err)
	}
	if err := s.inside(ctx, op, t); err != nil {
		return nil, err
	}
	if err := s.current(ctx, x); err != nil {
		return nil, s.translate(op, err)
	}
	if t.sessions == nil {
		t.sessions = make(map[*Store]*session)
	}
	t.sessions[s] = x
	return x, nil
}

// inside proves that a caller's transaction is open: SQLite ends one by itself
// after some errors, and what the store wrote would then be committed at once. A
// BEGIN fails inside of a transaction, whatever it is, and changes nothing.
func (s *Store) inside(ctx context.Context, op string, t *transaction) error {
	_, err := t.joined.ExecContext(ctx, "BEGIN")
	if err == nil {
		_, err = t.joined.ExecContext(ctx, "ROLLBACK")
		return store.NewError(op, store.ErrTxDone, "the database or a statement inside of it has ended it", err)
	}
	code, ok := primaryCode(err)
	switch {
	case ok && code == codeError:
		return nil
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, errRolledBack):
		return store.NewError(op, store.ErrTxDone, "", err)
	case ok || errors.Is(err, driver.ErrBadConn) || errors.Is(err, context.Canceled):
		return s.translate(op, err)
	default:
		return nil // Another driver, with errors of its own.
	}
}

// isTrouble tells an error that says nothing about whose database it is.
func isTrouble(err error) bool {
	code, ok := primaryCode(err)
	return ok && code != codeError || errors.Is(err, errRolledBack) || errors.Is(err, errEnded)
}
