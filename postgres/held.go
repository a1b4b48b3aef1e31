package postgres

import (
	"cmp"
	"context"
	"database/sql"
)

// beginSQL makes a transaction of database/sql fit, whatever the defaults of the
// role or the database are, as beginText does it for one of pgx.
const beginSQL = `SET TRANSACTION READ WRITE; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0;
	SET LOCAL idle_in_transaction_session_timeout = 0;
	SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local')` + unlimited

// heldConn is a connection of database/sql that a transaction of ours holds.
//
// database/sql ends a transaction with the context that it was begun under, which
// may be that of the first use of a lazy one, and shorter than the transaction. So
// it gets a context of its own.
type heldConn struct {
	conn *sql.Conn
	// interrupt ends that context.
	interrupt context.CancelFunc
}

// openSQL begins a transaction of ours on [Config].SQL.
func (t *transaction) openSQL(ctx context.Context) (querier, error) {
	conn, err := t.owner.cfg.SQL.Conn(ctx)
	if err != nil {
		return nil, err
	}
	lasts, interrupt := context.WithCancel(context.WithoutCancel(ctx))
	held := &heldConn{conn, interrupt}
	stop := held.within(ctx)
	tx, err := conn.BeginTx(lasts, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err == nil {
		if _, err = tx.ExecContext(lasts, beginSQL); err == nil && stop() {
			t.standard, t.held = tx, held
			return standard{tx}, nil
		}
		_ = tx.Rollback() // A connection on which it fails is closed.
	}
	stop()
	held.release()
	return nil, cmp.Or(ctx.Err(), err)
}

// within has the context interrupt what the transaction does, until stop is called,
// which reports whether it came in time.
func (h *heldConn) within(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, h.interrupt)
}

// release gives the connection back; the transaction has ended.
func (h *heldConn) release() {
	h.interrupt()
	_ = h.conn.Close() // One that is broken is closed by database/sql.
}
