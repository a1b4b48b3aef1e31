package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// B3 I2: when a statement has ended the transaction, nothing goes on by itself.
func TestTransactionEndedByStatement(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	d.publish(d.event("known", "", "h"))
	err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if _, err := postgres.Tx(ctx).Exec(ctx, `ROLLBACK`); err != nil {
			return err
		}
		if _, err := d.s.Append(ctx, tx, []store.NewEvent{d.event("phantom", "", "h")}, d.now); !errors.Is(err, store.ErrTxDone) {
			t.Errorf("append: %v, want ErrTxDone", err)
		}
		if err := d.s.CheckTx(ctx, tx); !errors.Is(err, store.ErrTxDone) {
			t.Errorf("check: %v, want ErrTxDone", err)
		}
		return nil
	})
	if !errors.Is(err, store.ErrTxDone) || !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("transact: %v, want ErrTxDone of unknown outcome", err)
	}
	d.wantCounts(1, 0)
}

// B3: a transaction whose connection is broken is not one of another database, which the bus would pass over.
func TestJoinBrokenConnection(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	var raw net.Conn
	c := d.pool.Config()
	c.MaxConns = 1
	c.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		raw = conn.PgConn().Conn()
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatalf("open pool: %v", err)
	}
	defer pool.Close()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	if err := raw.Close(); err != nil {
		t.Fatalf("break: %v", err)
	}
	if err := d.s.CheckTx(t.Context(), postgres.Join(tx)); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrForeignTx) {
		t.Errorf("check: %v, want ErrUnavailable", err)
	}
	if err := tx.Rollback(t.Context()); err == nil {
		t.Error("the connection was not broken")
	}
}

// B3: who publishes while the rows of a query are open is told so, and can go on afterwards.
func TestPublishBesideOpenRows(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	d.publish(d.event("known", "", "h"))
	publish := func(ctx context.Context, q pgx.Tx, tx store.Tx, ids ...string) error {
		rows, err := q.Query(ctx, `SELECT generate_series(1, 3)`)
		if err != nil {
			return err
		}
		rows.Next()
		if _, err := d.s.Append(ctx, tx, []store.NewEvent{d.event(ids[0], "", "h")}, d.now); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("append beside open rows: %v, want ErrInvalidArgument", err)
		}
		rows.Close()
		_, err = d.s.Append(ctx, tx, []store.NewEvent{d.event(ids[1], "", "h")}, d.now)
		return err
	}
	err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		return publish(ctx, postgres.Tx(ctx), tx, "not", "one")
	})
	if err != nil {
		t.Errorf("transact: %v", err)
	}
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	if err := errors.Join(publish(t.Context(), tx, postgres.Join(tx), "nor", "two"), tx.Commit(t.Context())); err != nil {
		t.Errorf("joined: %v", err)
	}
	d.wantCounts(3, 0)
}

// S4: completing a delivery with a key needs to see what was parked until then, and says so.
func TestCompleteInRepeatableRead(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	for _, key := range []string{"key", ""} {
		d.publish(d.event("first"+key, key, "h"))
		first := d.claim(10, "h")
		err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			if _, err := postgres.Tx(ctx).Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
				return err
			}
			return d.s.CompleteTx(ctx, tx, "w", first[0].Lease, d.now)
		})
		if key == "" && err != nil || key != "" && !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("complete with key %q: %v", key, err)
		}
	}
	d.wantCounts(0, 1)
}

// P4: a transaction with any number of publishes takes a bounded number of locks.
func TestLocksOfManyPublishes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		for n := range 300 {
			for part, fresh := range []bool{false, true} {
				e := d.event(fmt.Sprint("e", n, part), fmt.Sprint("k", n, part), "h")
				e.Fresh = fresh
				if _, err := d.s.Append(ctx, tx, []store.NewEvent{e}, d.now); err != nil {
					return err
				}
			}
		}
		var locks int
		err := postgres.Tx(ctx).QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`).Scan(&locks)
		if locks > 512 {
			t.Errorf("600 publishes hold %d locks", locks)
		}
		return err
	})
	if err != nil {
		t.Errorf("transact: %v", err)
	}
	d.wantCounts(600, 0)
}

// A closed store refuses everything, also in a transaction of the caller's.
func TestClosedStoreRefusesAppend(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	if err := d.s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if _, err := d.s.Append(t.Context(), postgres.Join(tx), []store.NewEvent{d.event("e", "", "h")}, d.now); !errors.Is(err, store.ErrClosed) {
		t.Errorf("append: %v, want ErrClosed", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Errorf("roll back: %v", err)
	}
}

// A transaction that is nil is refused, of whatever type it is.
func TestJoinNil(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	for name, tx := range map[string]store.Tx{
		"nil":           postgres.Join(nil),
		"a nil pool's":  postgres.Join((*pgxpool.Tx)(nil)),
		"nil, sql":      postgres.JoinSQL(nil),
		"a nil *sql.Tx": postgres.JoinSQL((*sql.Tx)(nil)),
	} {
		if err := d.s.CheckTx(t.Context(), tx); !errors.Is(err, store.ErrTxDone) {
			t.Errorf("%s: %v, want ErrTxDone", name, err)
		}
	}
}
