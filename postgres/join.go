package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/store"
)

// CheckTx reports whether tx is an open transaction of this database; see
// [store.Transactor]. The first check of a joined transaction asks the database,
// once for each connection of pgx.
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
	if t.owner == nil {
		_, err := s.join(ctx, op, t)
		return err
	}
	if t.owner != s {
		same, err := s.sameDatabase(ctx, op, t.owner)
		if err != nil {
			return err
		}
		if !same {
			return store.NewError(op, store.ErrForeignTx, "", nil)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.done:
		return store.NewError(op, store.ErrTxDone, "", nil)
	case t.conn != nil:
		return inTransaction(op, t.conn.Conn())
	default:
		return nil
	}
}

// sameDatabase reports whether another store is on the same tables.
func (s *Store) sameDatabase(ctx context.Context, op string, other *Store) (bool, error) {
	if s.key != other.key {
		return false, nil
	}
	mine, err := s.databaseID(ctx, op)
	if err != nil {
		return false, err
	}
	theirs, err := other.databaseID(ctx, op)
	return theirs == mine, err
}

// sessionOf returns the session in which the store works inside tx.
func (s *Store) sessionOf(ctx context.Context, op string, tx store.Tx) (*session, *transaction, error) {
	t, ok := tx.(*transaction)
	if ok && t != nil && t.owner == nil {
		x, err := s.join(ctx, op, t)
		return x, t, err
	}
	if err := s.CheckTx(ctx, tx); err != nil {
		return nil, nil, translate(op, err)
	}
	if _, err := s.databaseID(ctx, op); err != nil {
		return nil, nil, err
	}
	x, err := t.begin(ctx)
	if err != nil {
		return nil, nil, translate(op, err)
	}
	return x, t, nil
}

// join checks a caller's transaction, once with success, and whether it is still
// open each time.
func (s *Store) join(ctx context.Context, op string, t *transaction) (*session, error) {
	// Setup has learned it already, or whatever else the bus did before.
	if _, err := s.databaseID(ctx, op); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.native == nil && t.standard == nil {
		return nil, store.NewError(op, store.ErrTxDone, "the transaction is nil", nil)
	}
	if err := t.isOpen(ctx, op); err != nil {
		return nil, err
	}
	if x := t.sessions[s]; x != nil {
		return x, nil
	}
	q, known := t.querier()
	x := &session{querier: q, s: s}
	if known != nil {
		// Another one may be of before the tables were dropped and set up again.
		if id, ok := known[s.key].(string); ok && id == *s.identity.Load() {
			return x, s.admit(op, t, x, id)
		}
	}
	var has bool
	var id string
	_, err := x.row(ctx, s.sql.hasMeta, []any{&has}, s.cfg.meta()...)
	if err == nil && has {
		_, err = x.row(ctx, s.sql.identify, []any{&id})
	}
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return nil, store.NewError(op, store.ErrTxDone, "", err)
	case err != nil && t.native == nil && isForeignSpeech(err):
		return nil, store.NewError(op, store.ErrForeignTx, "", err)
	case err != nil:
		return nil, translate(op, err)
	case !has:
		return nil, store.NewError(op, store.ErrForeignTx, "", nil)
	}
	if known != nil {
		known[s.key] = id
	}
	return x, s.admit(op, t, x, id)
}

// isForeignSpeech reports whether a statement of database/sql was not understood: the
// transaction is one of another kind of database.
func isForeignSpeech(err error) bool {
	var network net.Error
	return stateOf(err) == "" && !pgconn.SafeToRetry(err) && !errors.As(err, &network) &&
		!slices.ContainsFunc([]error{
			context.Canceled, context.DeadlineExceeded, driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		}, func(other error) bool { return errors.Is(err, other) })
}

// admit lets a transaction in whose database has this id.
func (s *Store) admit(op string, t *transaction, x *session, id string) error {
	if *s.identity.Load() != id {
		return store.NewError(op, store.ErrForeignTx, "", nil)
	}
	if t.sessions == nil {
		t.sessions = make(map[*Store]*session)
	}
	t.sessions[s] = x
	return nil
}

// querier also returns what is known of the connection of a pgx transaction that
// is open.
func (t *transaction) querier() (querier, map[string]any) {
	if t.native == nil {
		return standard{t.standard}, nil
	}
	if conn := t.native.Conn(); conn != nil {
		return native{t.native}, conn.PgConn().CustomData()
	}
	return native{t.native}, nil
}

// isOpen reports whether a caller's transaction is open, for pgx without asking
// the server. Only an open one may be asked for its connection: after the end
// somebody else has that.
func (t *transaction) isOpen(ctx context.Context, op string) error {
	if t.native == nil {
		_, err := standard{t.standard}.exec(ctx, `SELECT 1`)
		if errors.Is(err, sql.ErrTxDone) || stateOf(err) == codeAborted {
			return store.NewError(op, store.ErrTxDone, "", err)
		}
		return translate(op, err)
	}
	err := t.native.SendBatch(ctx, &pgx.Batch{}).Close()
	switch {
	case errors.Is(err, pgx.ErrTxClosed):
		return store.NewError(op, store.ErrTxDone, "", err)
	case err != nil:
		return translate(op, err)
	}
	conn := t.native.Conn()
	if conn == nil {
		return nil // A wrapper without one.
	}
	return inTransaction(op, conn)
}

// inTransaction reports whether a transaction is open on the connection, and can be
// used.
func inTransaction(op string, conn *pgx.Conn) error {
	if conn.PgConn().IsBusy() {
		return invalid(op, "the transaction is in use: the rows of an earlier query are not closed")
	}
	switch conn.PgConn().TxStatus() {
	case 'T':
		return nil
	case 'E':
		return store.NewError(op, store.ErrTxDone, "an earlier error has aborted the transaction", nil)
	default:
		return store.NewError(op, store.ErrTxDone, "a statement inside of it has ended it", nil)
	}
}

// beginText returns how to begin a transaction of the caller's on a connection. It
// sets what the defaults of the role or the database would make unfit for one:
// they are asked for once for each connection, in one round trip in any mode of pgx, as
// a pooler may serve the next one by another session.
func (*Store) beginText(ctx context.Context, conn *pgxpool.Conn) (string, error) {
	const name = "relaybus begin"
	data := conn.Conn().PgConn().CustomData()
	if text, ok := data[name].(string); ok {
		return text, nil
	}
	var commits string
	var limited bool
	err := conn.QueryRow(ctx, `SELECT current_setting('synchronous_commit'), current_setting('statement_timeout') <> '0'
		OR current_setting('lock_timeout') <> '0' OR current_setting('idle_in_transaction_session_timeout') <> '0'
		OR coalesce(current_setting('transaction_timeout', true), '0') <> '0'`, pgx.QueryExecModeExec).Scan(&commits, &limited)
	if err != nil {
		return "", err
	}
	text := beginWriting
	if commits == "off" || commits == "local" {
		text += "; set local synchronous_commit = on"
	}
	if limited {
		// The time budget of the bus bounds the transaction.
		text += "; set local statement_timeout = 0; set local lock_timeout = 0; set local idle_in_transaction_session_timeout = 0" + unlimited
	}
	data[name] = text
	return text, nil
}
