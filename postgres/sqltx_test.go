package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// newSQLDesk is a store whose transactions are those of database/sql, on one connection, which has these settings.
func newSQLDesk(t *testing.T, settings map[string]string) (*desk, *sql.DB) {
	t.Helper()
	url := newDatabaseURL(t)
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatalf("parse url: %v", err)
	}
	maps.Copy(c.RuntimeParams, settings)
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return newDesk(t, newPool(t, url), postgres.Config{SQL: db}), db
}

// B7 F38: a transaction that opens at its first use goes on when the context of that use has ended.
func TestSQLTransactionOutlivesItsFirstUse(t *testing.T) {
	t.Parallel()
	d, _ := newSQLDesk(t, nil)
	err := d.s.Transact(t.Context(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
		first, cancel := context.WithCancel(ctx)
		q, ok := postgres.SQLTxFrom(first)
		if !ok {
			t.Fatal("the context has no transaction")
		}
		_, err := q.ExecContext(first, `SELECT 1`)
		cancel()
		if err != nil {
			return err
		}
		// Whoever would end it with that context has had the time to.
		if _, err := q.ExecContext(ctx, `SELECT pg_sleep(0.1)`); err != nil {
			return err
		}
		_, err = d.s.Append(ctx, tx, []store.NewEvent{d.event("lazy", "", "h")}, d.now)
		return err
	})
	if err != nil {
		t.Errorf("transact: %v", err)
	}
	d.wantCounts(1, 0)
}

// B7: however a transaction ends, its connection is there for the next one, and what was not committed is undone.
func TestSQLTransactionGivesItsConnectionBack(t *testing.T) {
	t.Parallel()
	d, db := newSQLDesk(t, nil)
	failed := errors.New("failed")
	ctx, cancel := context.WithCancel(t.Context())
	for _, one := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // one of a table of calls
		want error
		end  func(q postgres.SQLTx) error
	}{
		{"undone", t.Context(), failed, func(postgres.SQLTx) error { return failed }},
		{"ended by its function", t.Context(), store.ErrTxDone, postgres.SQLTx.Rollback},
		{"of an ended context", ctx, store.ErrTimeout, func(postgres.SQLTx) error { cancel(); return nil }},
		{"aborted", t.Context(), store.ErrTxDone, func(q postgres.SQLTx) error {
			if _, err := q.ExecContext(t.Context(), `SELECT 1 / 0`); err == nil {
				t.Error("divided by zero")
			}
			return nil
		}},
		{"committed", t.Context(), nil, func(postgres.SQLTx) error { return nil }},
	} {
		err := d.s.Transact(one.ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			q, _ := postgres.SQLTxFrom(ctx)
			if _, err := d.s.Append(ctx, tx, []store.NewEvent{d.event(one.name, "", "h")}, d.now); err != nil {
				return err
			}
			return one.end(q)
		})
		if !errors.Is(err, one.want) {
			t.Errorf("%s: %v, want %v", one.name, err, one.want)
		}
		if used := db.Stats().InUse; used != 0 {
			t.Fatalf("%s: %d connections are not given back", one.name, used)
		}
	}
	d.wantCounts(1, 0)
}

// F21: whatever a role sets for its transactions, one of database/sql that the bus opens is fit to publish in.
func TestSQLTransactionDefaults(t *testing.T) {
	t.Parallel()
	d, _ := newSQLDesk(t, map[string]string{
		"default_transaction_read_only": "on", "default_transaction_isolation": "serializable", "synchronous_commit": "off",
		"statement_timeout": "50ms", "lock_timeout": "50ms", "idle_in_transaction_session_timeout": "50ms",
	})
	err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		q, _ := postgres.SQLTxFrom(ctx)
		rows, err := q.QueryContext(ctx, `SELECT name || ' = ' || setting FROM pg_settings
			WHERE (name, setting) IN (('transaction_read_only', 'on'), ('synchronous_commit', 'off')) OR name = 'transaction_isolation' AND setting <> 'read committed'
				OR name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout') AND setting <> '0'`)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // It is read to its end.
		for rows.Next() {
			var unfit string
			if err := rows.Scan(&unfit); err != nil {
				return err
			}
			t.Errorf("in the transaction %s", unfit)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		_, err = d.s.Append(ctx, tx, []store.NewEvent{d.event("e", "", "h")}, d.now)
		return err
	})
	if err != nil {
		t.Errorf("transact: %v", err)
	}
	d.wantCounts(1, 0)
}
