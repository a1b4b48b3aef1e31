package ormtest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/postgres"
)

// newSQLBed makes a bus whose transactions are opened on a *sql.DB.
func newSQLBed(t *testing.T, driver string, change func(*relaybus.Config)) *bed {
	t.Helper()
	url := newDatabaseURL(t)
	return newBedAt(t, url, postgres.Config{SQL: openDB(t, driver, url)}, change)
}

func eachDriver(t *testing.T, test func(t *testing.T, driver string)) {
	t.Helper()
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver)
		})
	}
}

// P1: with Config.SQL, Transaction opens a *sql.Tx, at the level of isolation that the store needs.
func TestTransactionOfBus(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	eachDriver(t, func(t *testing.T, driver string) {
		t.Helper()
		b := newSQLBed(t, driver, nil)
		var finished postgres.SQLTx
		for _, result := range []error{nil, failed} {
			id := map[bool]string{true: "kept", false: "undone"}[result == nil]
			err := b.Transaction(t.Context(), func(ctx context.Context) error {
				tx, ok := postgres.SQLTxFrom(ctx)
				if !ok {
					t.Fatal("the context has no transaction of database/sql")
				}
				if _, ok := tx.(*sql.Tx); !ok {
					t.Errorf("the transaction is a %T", tx)
				}
				if _, ok := postgres.TxFrom(ctx); ok {
					t.Error("the context also has a transaction of pgx")
				}
				finished = tx
				// The caller may join it once more by itself.
				return errors.Join(insertStandard(tx)(ctx, id), b.Publish(ctx, order(id)),
					b.PublishTx(ctx, postgres.JoinSQL(tx), order(id+" joined")), result)
			})
			if !errors.Is(err, result) {
				t.Errorf("transaction: %v, want %v", err, result)
			}
			if err := b.PublishTx(t.Context(), postgres.JoinSQL(finished), order("late")); !errors.Is(err, relaybus.ErrTxDone) {
				t.Errorf("publish after the end: %v", err)
			}
		}
		b.wantHandled("kept", "kept joined")
		b.wantOrders("kept")
	})
}

// P1: a caller who ends the transaction of the bus learns that its outcome is not known.
func TestTransactionEndedByCaller(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, driver string) {
		t.Helper()
		b := newSQLBed(t, driver, nil)
		err := b.Transaction(t.Context(), func(ctx context.Context) error {
			tx, _ := postgres.SQLTxFrom(ctx)
			return errors.Join(b.Publish(ctx, order("a")), tx.Rollback())
		})
		if !errors.Is(err, relaybus.ErrTxDone) {
			t.Errorf("transaction: %v", err)
		}
		b.wantHandled()
	})
}

// B7: past its budget the transaction is rolled back, and its connection is fit for the next one.
func TestTransactionBudget(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, driver string) {
		t.Helper()
		b := newSQLBed(t, driver, func(c *relaybus.Config) { c.TransactionTimeout = 50 * time.Millisecond })
		err := b.Transaction(t.Context(), func(ctx context.Context) error {
			tx, _ := postgres.SQLTxFrom(ctx)
			err := errors.Join(insertStandard(tx)(ctx, "late"), b.Publish(ctx, order("late")))
			<-ctx.Done()
			return err
		})
		if late, ok := errors.AsType[*relaybus.TransactionTimeoutError](err); !ok || relaybus.OutcomeOf(err) != relaybus.NotCommitted {
			t.Errorf("transaction: %v, %v", err, late)
		}
		b.wantHandled()
		b.wantOrders()
	})
}

// B12: a transactional handler writes by database/sql, and its writes commit with its completion or not at all.
func TestTransactionalHandler(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l library) {
		t.Helper()
		b := newSQLBed(t, "pgx", nil)
		h := l.open(t, b.url)
		attempts := 0
		err := b.Subscribe(relaybus.Handle("bill", []string{placed}, func(ctx context.Context, e *relaybus.RawEvent) error {
			tx, ok := postgres.SQLTxFrom(ctx)
			if !ok {
				return relaybus.Permanent(errors.New("no transaction"))
			}
			insert := h.within(tx)
			if insert == nil {
				return relaybus.Permanent(errors.New("the library does not take the transaction"))
			}
			if err := errors.Join(insert(ctx, "bill "+e.ID), b.Publish(ctx, relaybus.Raw("order.billed", []byte(`{}`)))); err != nil {
				return err
			}
			if attempts++; attempts < 3 {
				return errors.New("not yet")
			}
			return nil
		}, relaybus.Transactional()))
		if err != nil {
			t.Fatalf("subscribe: %v", err)
		}
		billed := 0
		err = b.Subscribe(relaybus.Handle("count", []string{"order.billed"}, func(context.Context, *relaybus.RawEvent) error {
			billed++
			return nil
		}))
		if err != nil {
			t.Fatalf("subscribe: %v", err)
		}
		tx := h.open(t)
		if err := b.PublishTx(t.Context(), tx.join(), order("a", relaybus.Key("k"))); err != nil {
			t.Fatalf("publish: %v", err)
		}
		if err := tx.commit(); err != nil {
			t.Fatalf("commit: %v", err)
		}
		b.wantHandled("a")
		if attempts != 3 {
			t.Errorf("the handler ran %d times", attempts)
		}
		b.wantOrders("bill a")
		if billed != 1 {
			t.Errorf("%d events were published by the handler, want 1", billed)
		}
	})
}
