package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/relaybus-go/relaybus/store"
)

// refusal is a transaction that could not begin: every statement on it fails
// with the reason. [Tx] has one result, and a panic would be no way to say that
// the database is locked.
type refusal struct {
	err error
	db  *sql.DB
	tx  *sql.Tx
}

func newRefusal(ctx context.Context, err error) *refusal {
	r := &refusal{err: err, db: sql.OpenDB(refusingConnector{err})}
	// The driver below begins without fail.
	r.tx, _ = r.db.BeginTx(ctx, nil) // See above.
	return r
}

// endedTx returns a transaction that has ended. All that have share one, as
// nothing says when a caller drops it; who ends it gets another the next time.
func (s *Store) endedTx(ctx context.Context) *sql.Tx {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.finished; r != nil {
		if _, err := r.tx.ExecContext(still(ctx), ""); !errors.Is(err, sql.ErrTxDone) {
			return r.tx
		}
		r.close()
		s.finished = nil
	}
	r := newRefusal(still(ctx), errFinished)
	if s.closed.Load() {
		r.close() // Nobody would do it later.
	} else {
		s.finished = r
	}
	return r.tx
}

var errFinished = store.NewError("use transaction", store.ErrTxDone, "", nil)

func (r *refusal) close() {
	_ = r.tx.Rollback() // The caller may have ended it.
	_ = r.db.Close()    // There is nothing behind it.
}

type refusingConnector struct{ err error }

func (c refusingConnector) Connect(context.Context) (driver.Conn, error) { return refusingConn(c), nil }

func (c refusingConnector) Driver() driver.Driver { return refusingDriver(c) }

type refusingDriver struct{ err error }

func (d refusingDriver) Open(string) (driver.Conn, error) { return refusingConn(d), nil }

type refusingConn struct{ err error }

func (c refusingConn) Prepare(string) (driver.Stmt, error) { return nil, c.err }
func (refusingConn) Close() error                          { return nil }
func (c refusingConn) Begin() (driver.Tx, error)           { return refusingTx(c), nil }

type refusingTx struct{ err error }

func (t refusingTx) Commit() error { return t.err }
func (refusingTx) Rollback() error { return nil }
