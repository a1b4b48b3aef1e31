package sqlite_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// F56 Z8: a lazy transaction takes the write lock at its first use.
func TestLazyTransaction(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.exec(`CREATE TABLE orders (id TEXT)`)
	patient := open(t, b.path, sqlite.Config{})
	hasty := open(t, b.path, sqlite.Config{BusyTimeout: 100 * time.Millisecond})
	writes := func(s *sqlite.Store) error {
		return s.Transact(t.Context(), store.TxOptions{}, func(context.Context, store.Tx) error { return nil })
	}
	err := b.s.Transact(t.Context(), store.TxOptions{Lazy: true}, func(ctx context.Context, _ store.Tx) error {
		if err := writes(patient); err != nil {
			t.Errorf("another process can't write beside an unused transaction: %v", err)
		}
		if _, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO orders VALUES ('a')`); err != nil {
			return err
		}
		if err := writes(hasty); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("another process writes inside of a transaction: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("transact: %v", err)
	}
	if got := b.texts(`SELECT id FROM orders`); len(got) != 1 {
		t.Errorf("orders: %v", got)
	}
}

// F56: when a lazy transaction can't begin, each statement says why, and so
// does the commit.
func TestLazyTransactionRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.exec(`CREATE TABLE orders (id TEXT)`)
	late := open(t, b.path, sqlite.Config{BusyTimeout: time.Millisecond})
	holder := beginOn(t, b.s.DB())
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	err := late.Transact(t.Context(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
		handle := sqlite.Tx(ctx)
		_, err := handle.ExecContext(ctx, `INSERT INTO orders VALUES ('a')`)
		refused("exec", err)
		if prepared, err := handle.PrepareContext(ctx, `SELECT 1`); err == nil {
			defer func() { t.Errorf("prepare: no error; close: %v", prepared.Close()) }()
		} else {
			refused("prepare", err)
		}
		refused("query", handle.QueryRowContext(ctx, `SELECT 1`).Scan(new(int)))
		_, err = late.Append(ctx, tx, []store.NewEvent{b.event("e", "", "h")}, b.now)
		refused("append", err)
		// The lock is free now, but what was refused is lost.
		if err := holder.Rollback(); err != nil {
			t.Errorf("roll back: %v", err)
		}
		_, err = sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO orders VALUES ('b')`)
		refused("exec when the lock is free", err)
		return nil
	})
	refused("commit", err)
	if errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("nothing began, and the outcome is unknown: %v", err)
	}
	if got := b.texts(`SELECT id FROM orders`); len(got) != 0 {
		t.Errorf("orders: %v", got)
	}
}

// F09: a transaction inside of another one that does not get its context ends
// with an error that says what holds it up.
func TestNestedTransaction(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.s = open(t, b.path, sqlite.Config{BusyTimeout: 100 * time.Millisecond})
	// The connection is there before the clock ticks.
	if err := b.s.DB().PingContext(t.Context()); err != nil {
		t.Fatalf("ping: %v", err)
	}
	ctx := t.Context()
	err := b.s.Transact(ctx, store.TxOptions{}, func(context.Context, store.Tx) error {
		calls := map[string]error{
			"transact": b.s.Transact(ctx, store.TxOptions{}, func(context.Context, store.Tx) error { return nil }),
			"pause":    b.s.PauseHandler(ctx, "h", true, b.now),
		}
		for name, err := range calls {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "transaction of this process") {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("the outer transaction: %v", err)
	}
}

// A context that ends while a step waits for a lock ends the step.
func TestWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.publish(b.event("e", "", "h"))
	other := open(t, b.path, sqlite.Config{BusyTimeout: time.Hour})
	holder := beginOn(t, b.s.DB())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := other.Claim(ctx, b.request("w", 1, "h"))
	if !errors.Is(err, store.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("claim: %v", err)
	}
	if err := holder.Rollback(); err != nil {
		t.Fatalf("roll back: %v", err)
	}
	if got, err := other.Claim(t.Context(), b.request("w", 1, "h")); err != nil || len(got.Deliveries) != 1 {
		t.Errorf("claim after the lock: %v, %v", got, err)
	}
}

// B3 I7: SQLite rolls a transaction back when it interrupts a write. What the
// function does afterwards must not be committed on its own.
func TestInterruptedTransaction(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.exec(`CREATE TABLE orders (id INTEGER)`)
	const long = `INSERT INTO orders SELECT x FROM (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c)`
	err := b.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		handle := sqlite.Tx(ctx)
		if _, err := handle.ExecContext(ctx, `INSERT INTO orders VALUES (1)`); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := handle.ExecContext(short, long); err == nil {
			t.Error("the endless statement ended")
		}
		if _, err := handle.ExecContext(ctx, `INSERT INTO orders VALUES (2)`); !errors.Is(err, store.ErrTxDone) {
			t.Errorf("a statement after the rollback: %v", err)
		}
		if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("e", "", "h")}, b.now); err == nil {
			t.Error("an append after the rollback")
		}
		return nil
	})
	if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("the commit: %v", err)
	}
	if got := b.texts(`SELECT id FROM orders`); len(got) != 0 {
		t.Errorf("orders: %v", got)
	}
	// The connection works again.
	b.publish(b.event("e", "", "h"))
}

// A context without a transaction: the panic names what is missing.
func TestTxWithout(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	if _, ok := sqlite.TxFrom(t.Context()); ok {
		t.Error("a transaction came from nowhere")
	}
	for name, call := range map[string]func(){
		"Tx":       func() { sqlite.Tx(t.Context()) },
		"Store.Tx": func() { b.s.Tx(t.Context()) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "carries no") {
					t.Errorf("%s: panic %q", name, text)
				}
			}()
			call()
		}()
	}
}

// B1: with two databases each store finds its own transaction.
func TestTwoDatabases(t *testing.T) {
	t.Parallel()
	a, b := newBed(t, sqlite.Config{}), newBed(t, sqlite.Config{})
	err := a.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, _ store.Tx) error {
		outer := sqlite.Tx(ctx)
		return b.s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, _ store.Tx) error {
			if a.s.Tx(ctx) != outer || b.s.Tx(ctx) == outer || sqlite.Tx(ctx) != b.s.Tx(ctx) {
				t.Error("the transactions are mixed up")
			}
			return nil
		})
	})
	if err != nil {
		t.Errorf("transact: %v", err)
	}
}
