package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/relaybus-go/relaybus/store"
)

// session runs the store's statements in one transaction.
type session struct {
	s  *Store
	tx *sql.Tx
	// committed runs after the commit, while the writer is still held: what is
	// kept in memory changes in the order of the database.
	committed []func()
	// private says that no caller has a hand in the transaction.
	private bool
	// groups has the alias sets that it has read.
	groups map[int64][]int64
	// version is that of the database for the writer connection.
	version int64
	// settles says that a claim ends with the transaction.
	settles bool
	// snapshot says that it only sees what is committed.
	snapshot bool
}

func (x *session) onCommit(f func()) { x.committed = append(x.committed, f) }

func (x *session) exec(ctx context.Context, text string, args ...any) (int64, error) {
	result, err := x.tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	x.s.meter.rows.Add(n)
	return n, err
}

// insert runs an insert of at most one row into a table with a number for key.
func (x *session) insert(ctx context.Context, text string, args ...any) (id, n int64, err error) {
	result, err := x.tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, 0, err
	}
	if n, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	x.s.meter.rows.Add(n)
	id, err = result.LastInsertId()
	return id, n, err
}

// rows calls scan for each row until it returns false or an error.
func (x *session) rows(
	ctx context.Context, text string, scan func(scan func(dest ...any) error) (more bool, err error), args ...any,
) (err error) {
	rows, err := x.tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		x.s.meter.rows.Add(1)
		more, err := scan(rows.Scan)
		if err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// row reads at most one row.
func (x *session) row(ctx context.Context, text string, dest []any, args ...any) (found bool, err error) {
	err = x.rows(ctx, text, func(scan func(...any) error) (bool, error) {
		found = true
		return false, scan(dest...)
	}, args...)
	return found, err
}

// write runs fn in a write transaction of the store's own. The context that fn
// gets does not end; the one of the caller is looked at before the commit.
func (s *Store) write(ctx context.Context, op string, fn func(ctx context.Context, x *session) error) error {
	t, err := s.begin(ctx, op)
	if err != nil {
		return err
	}
	defer t.rollback()
	t.private = true
	if err := s.current(still(ctx), t.session); err != nil {
		return s.translate(op, err)
	}
	if err := fn(still(ctx), t.session); err != nil {
		return s.translate(op, err)
	}
	if err := ended(ctx, op); err != nil {
		return err
	}
	return t.commit(op)
}

// read runs fn in a read transaction.
func (s *Store) read(ctx context.Context, op string, fn func(ctx context.Context, x *session) error) error {
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	tx, done, err := s.beginRead(ctx, op)
	if err != nil {
		return err
	}
	defer done()
	x := &session{s: s, tx: tx, snapshot: true}
	if err = s.current(ctx, x); err == nil {
		err = fn(ctx, x)
	}
	if err != nil {
		// database/sql closes what is open when the context ends, and what runs
		// on it then fails with an error of its own.
		if late := ended(ctx, op); late != nil {
			return late
		}
	}
	return s.translate(op, err)
}

// beginRead waits for a read connection, as long as for a write connection.
func (s *Store) beginRead(ctx context.Context, op string) (tx *sql.Tx, done func(), err error) {
	wait, cancel := context.WithTimeout(ctx, s.cfg.BusyTimeout)
	defer cancel()
	conn, err := s.reader.Conn(wait)
	if err != nil {
		if late := ended(ctx, op); late != nil {
			return nil, nil, late
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, nil, store.NewError(op, store.ErrUnavailable, "all read connections are in use for too long", err)
		}
		return nil, nil, s.translate(op, err)
	}
	tx, err = conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, s.translate(op, errors.Join(err, conn.Close()))
	}
	return tx, func() {
		_ = tx.Rollback() // Nothing was written.
		_ = conn.Close()  // It returns to the pool, or is gone.
	}, nil
}

// writing is an open write transaction on the writer connection.
type writing struct {
	*session
	conn *sql.Conn
	// leave lets the next one in.
	leave func()
	done  bool
}

// enter waits for the writer connection, in the order in which the goroutines
// came: database/sql serves those that wait in any order.
func (s *Store) enter(ctx context.Context) (conn *sql.Conn, leave func(), err error) {
	select {
	case s.gate <- struct{}{}:
	case <-s.gone:
		return nil, nil, store.NewError("wait for the writer", store.ErrClosed, "", nil)
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	leave = func() { <-s.gate }
	if conn, err = s.writer.Conn(ctx); err != nil {
		leave()
		return nil, nil, err
	}
	return conn, leave, nil
}

// nested reports whether the context carries a transaction of the store that
// holds the writer connection.
func (s *Store) nested(ctx context.Context) bool {
	for _, tx := range store.TxsFrom(ctx) {
		if t, ok := tx.(*transaction); ok && t != nil && t.owner == s && t.holds.Load() {
			return true
		}
	}
	return false
}

// begin waits for the writer connection of this process, and then for the
// write lock of the file.
func (s *Store) begin(ctx context.Context, op string) (*writing, error) {
	if err := s.usable(ctx, op); err != nil {
		return nil, err
	}
	if s.nested(ctx) {
		return nil, invalid(op, "the context carries an open transaction of this store, "+
			"which would wait for itself; use that one, or do this after its end")
	}
	wait, cancel := context.WithTimeout(ctx, s.cfg.BusyTimeout)
	defer cancel()
	conn, leave, err := s.enter(wait)
	if err != nil {
		if late := ended(ctx, op); late != nil {
			return nil, late
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, store.NewError(op, store.ErrUnavailable,
				"a transaction of this process holds the writer connection for too long, or waits for another process; "+
					"code inside a transaction must pass the transaction's context on", err)
		}
		return nil, s.translate(op, err)
	}
	s.crash("begin")
	tx, err := conn.BeginTx(patient(ctx), nil)
	if err != nil {
		err = errors.Join(err, conn.Close())
		leave()
		if late := ended(ctx, op); late != nil {
			return nil, late
		}
		return nil, s.translate(op, err)
	}
	t := &writing{session: &session{s: s, tx: tx}, conn: conn, leave: leave}
	if err := t.notice(still(ctx)); err != nil {
		t.rollback()
		return nil, s.translate(op, err)
	}
	return t, nil
}

// notice notes whether others have committed since the last transaction here:
// SQLite's counter leaves out what its own connection commits.
func (t *writing) notice(ctx context.Context) error {
	if _, err := t.row(ctx, t.s.sql.dataVersion, []any{&t.version}); err != nil {
		return err
	}
	if old := t.s.version.Swap(t.version); old != t.version && old != 0 {
		t.s.foreign.Add(1)
	}
	return nil
}

// rollback does nothing after a commit.
func (t *writing) rollback() {
	if t.done {
		return
	}
	t.done = true
	_ = t.tx.Rollback() // A transaction that can't be rolled back ends with its connection.
	_ = t.conn.Close()  // It returns to the pool, or is gone.
	t.leave()
}

// commit ends the transaction. Without [store.ErrOutcomeUnknown] an error means
// that nothing was committed.
func (t *writing) commit(op string) error {
	t.done = true
	// The connection returns to the pool only after memory has followed.
	defer func() {
		_ = t.conn.Close() // As above.
		t.leave()
	}()
	t.pass("commit ", op)
	err := t.tx.Commit()
	if err != nil {
		if isUncertain(err) {
			return uncertain(op, err)
		}
		return t.s.translate(op, err)
	}
	t.pass("committed ", op)
	t.s.commits.Add(1)
	for _, f := range t.committed {
		f()
	}
	return nil
}

// pass tells the crash points of a commit.
func (t *writing) pass(step, op string) {
	t.s.crash(step + op)
	if t.settles {
		t.s.crash(step + "settlement")
	}
}
