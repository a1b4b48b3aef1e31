package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/relaybus-go/relaybus/store"
)

// errRolledBack is the error of statements in a transaction that SQLite itself
// has rolled back, as it does when it interrupts a write: they would run, and
// commit, outside of it.
var errRolledBack = store.NewError(
	"use transaction", store.ErrTxDone, "the database rolled it back after an earlier error", nil)

// errEnded is the error of statements in a transaction that ended although
// nothing has failed: a statement of the caller was a COMMIT or a ROLLBACK.
var errEnded = &store.Error{
	Op: "use transaction", Class: store.ErrTxDone, Also: store.ErrOutcomeUnknown,
	Detail: "a statement inside of it has committed it or rolled it back",
}

type txState uint8

const (
	txNone txState = iota
	txOpen
	txRolledBack
	txEnded
)

// conn is a connection of the driver with what the driver leaves out.
type conn struct {
	driverConn
	c      *connector
	cached map[string]*stmt
	state  txState
	// touched says that a statement of a caller ran, which may have ended the
	// transaction.
	touched bool
}

// patientKey has the context that bounds the wait of a BEGIN whose transaction
// outlives that context.
type patientKey struct{}

// patient returns a context for BeginTx: the transaction does not end with ctx,
// but the wait for it does.
func patient(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), patientKey{}, ctx)
}

func waitContext(ctx context.Context) context.Context {
	if outer, ok := ctx.Value(patientKey{}).(context.Context); ok {
		return outer
	}
	return ctx
}

// BeginTx begins an immediate transaction on a writer, unless a read-only one
// is asked for.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o.Isolation != 0 {
		return nil, fmt.Errorf("isolation level %d: SQLite transactions are serializable, leave it out", o.Isolation)
	}
	begin := "BEGIN"
	if c.c.writer && !o.ReadOnly {
		begin = "BEGIN IMMEDIATE"
	}
	wait := waitContext(ctx)
	if err := c.c.wait(wait, func() error { return c.control(wait, begin) }); err != nil {
		return nil, err
	}
	c.state, c.touched = txOpen, false
	c.c.meter.begun(c.c.writer && !o.ReadOnly)
	return tx{c}, nil
}

// Begin is what older versions of database/sql call.
func (*conn) Begin() (driver.Tx, error) { return nil, driver.ErrSkip }

// control runs a statement that begins or ends a transaction. No context may
// interrupt it: then nobody would know what it did.
func (c *conn) control(ctx context.Context, text string) error {
	s, err := c.prepared(ctx, text)
	if err != nil {
		return err
	}
	_, err = s.exec.ExecContext(context.WithoutCancel(ctx), nil)
	return err
}

// prepared returns the prepared form of a statement that is kept.
func (c *conn) prepared(ctx context.Context, text string) (*stmt, error) {
	if s := c.cached[text]; s != nil {
		return s, nil
	}
	s, err := c.prepare(context.WithoutCancel(ctx), text)
	if err != nil {
		return nil, err
	}
	s.ours = true
	c.cached[text] = s
	return s, nil
}

func (c *conn) prepare(ctx context.Context, text string) (*stmt, error) {
	inner, err := c.driverConn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	exec, okExec := inner.(driver.StmtExecContext)
	query, okQuery := inner.(driver.StmtQueryContext)
	if !okExec || !okQuery {
		return nil, errors.Join(fmt.Errorf("driver statement %T takes no context", inner), inner.Close())
	}
	return &stmt{Stmt: inner, exec: exec, query: query, c: c}, nil
}

// Prepare is PrepareContext without a context.
func (c *conn) Prepare(text string) (driver.Stmt, error) {
	return c.PrepareContext(uninterrupted{}, text)
}

// PrepareContext prepares a statement of a caller.
func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	var s *stmt
	err := c.guard(ctx, false, func() (err error) {
		s, err = c.prepare(ctx, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ExecContext runs a statement, one of the store in its prepared form.
func (c *conn) ExecContext(
	ctx context.Context, text string, args []driver.NamedValue,
) (result driver.Result, err error) {
	if _, ours := c.c.statements[text]; ours && c.state == txOpen {
		s, err := c.prepared(ctx, text)
		if err != nil {
			return nil, err
		}
		return s.ExecContext(ctx, args)
	}
	err = c.guard(ctx, false, func() (err error) {
		result, err = c.driverConn.ExecContext(ctx, text, args)
		return err
	})
	return result, err
}

// QueryContext runs a query, one of the store in its prepared form.
func (c *conn) QueryContext(
	ctx context.Context, text string, args []driver.NamedValue,
) (rows driver.Rows, err error) {
	if _, ours := c.c.statements[text]; ours && c.state == txOpen {
		s, err := c.prepared(ctx, text)
		if err != nil {
			return nil, err
		}
		return s.QueryContext(ctx, args)
	}
	err = c.guard(ctx, false, func() (err error) {
		rows, err = c.driverConn.QueryContext(ctx, text, args)
		return err
	})
	return rows, err
}

// Close also closes the statements that were kept.
func (c *conn) Close() error {
	var errs []error
	for _, s := range c.cached {
		errs = append(errs, s.Close())
	}
	c.cached = nil
	return errors.Join(append(errs, c.driverConn.Close())...)
}

// guard runs f, which is a statement of a caller or of the store.
func (c *conn) guard(ctx context.Context, ours bool, f func() error) error {
	c.c.meter.statement()
	if ours && c.touched && c.state == txOpen {
		c.findOut(ctx, txEnded)
		c.touched = false
	}
	if c.state == txOpen && !ours {
		c.touched = true
	}
	switch {
	case c.state == txRolledBack:
		return errRolledBack
	case c.state == txEnded:
		return errEnded
	case !c.c.writer:
		// A reader meets a lock when somebody locks the whole file. What only
		// reads may be repeated.
		err := c.c.wait(ctx, f)
		if err != nil && c.state == txOpen {
			c.findOut(ctx, txRolledBack)
		}
		return err
	case c.state == txOpen:
		err := f()
		if err != nil {
			c.findOut(ctx, txRolledBack)
		}
		return err
	default:
		return c.alone(ctx, f)
	}
}

// alone runs a statement outside of a transaction. It may be a script, so
// the driver waits for locks here: after a part of it, f can't be repeated.
func (c *conn) alone(ctx context.Context, f func() error) error {
	if err := c.busyTimeout(ctx, c.c.busyTimeout.Milliseconds()); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, c.busyTimeout(context.WithoutCancel(ctx), 0))
}

func (c *conn) busyTimeout(ctx context.Context, milliseconds int64) error {
	_, err := c.driverConn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout=%d", milliseconds), nil)
	return err
}

// findOut notes whether the transaction is no more, which no standard interface
// tells: a BEGIN succeeds only outside of a transaction.
func (c *conn) findOut(ctx context.Context, then txState) {
	if c.control(ctx, "BEGIN") == nil {
		c.state = then
		_ = c.control(ctx, "ROLLBACK") // The empty transaction of the line above always ends.
	}
}

// tx ends the transaction of its connection.
type tx struct{ c *conn }

func (t tx) Commit() error {
	switch t.c.state {
	case txRolledBack:
		t.c.state = txNone
		return errRolledBack
	case txEnded:
		t.c.state = txNone
		return errEnded
	case txNone, txOpen:
	}
	// In WAL mode a COMMIT meets no lock; should it, then nothing has been
	// committed and it may be repeated.
	err := t.c.c.wait(uninterrupted{}, func() error { return t.c.control(uninterrupted{}, "COMMIT") })
	if code, ok := primaryCode(err); ok && code == codeError && t.c.touched {
		if t.c.findOut(uninterrupted{}, txEnded); t.c.state == txEnded {
			err = errEnded
		}
	}
	t.c.state = txNone
	if err != nil {
		// It fails when the COMMIT has ended the transaction already.
		_ = t.c.control(uninterrupted{}, "ROLLBACK") // The error of the COMMIT is the one that counts.
	}
	return err
}

func (t tx) Rollback() error {
	ended := t.c.state == txRolledBack || t.c.state == txEnded
	t.c.state = txNone
	if ended {
		return nil
	}
	return t.c.control(uninterrupted{}, "ROLLBACK")
}

// stmt is a prepared statement that knows its connection.
type stmt struct {
	driver.Stmt
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	c     *conn
	// ours is a statement of the store, which never ends a transaction.
	ours bool
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (result driver.Result, err error) {
	err = s.c.guard(ctx, s.ours, func() (err error) {
		result, err = s.exec.ExecContext(ctx, args)
		return err
	})
	return result, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = s.c.guard(ctx, s.ours, func() (err error) {
		rows, err = s.query.QueryContext(ctx, args)
		return err
	})
	return rows, err
}

var _ io.Closer = (*conn)(nil)
