package sqlite_test

import (
	"context"
	"errors"
	"testing"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// Nothing is written in a caller's transaction that SQLite has rolled back by
// itself: it would be committed at once.
func TestJoinRolledBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	b.publish(b.event("claimed", "", "h"))
	lease := b.claim(1, "h")[0].Lease
	db := plain(t, b.path)
	for _, early := range []bool{true, false} {
		tx := beginOn(t, db)
		joined := sqlite.Join(tx)
		if early {
			if err := b.s.CheckTx(t.Context(), joined); err != nil {
				t.Fatalf("check: %v", err)
			}
		}
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO orders VALUES (1)`); err != nil {
			t.Fatalf("insert: %v", err)
		}
		if _, err := tx.ExecContext(t.Context(), `INSERT OR ROLLBACK INTO orders VALUES (1)`); err == nil {
			t.Fatal("no conflict")
		}
		calls := map[string]error{
			"check":    b.s.CheckTx(t.Context(), joined),
			"complete": b.s.CompleteTx(t.Context(), joined, "w", lease, b.now),
		}
		_, calls["append"] = b.s.Append(t.Context(), joined, []store.NewEvent{b.event("late", "", "h")}, b.now)
		for name, err := range calls {
			if !errors.Is(err, store.ErrTxDone) {
				t.Errorf("joined before: %t, %s: %v", early, name, err)
			}
		}
		if err := tx.Commit(); err == nil {
			t.Error("the commit says nothing")
		}
	}
	if _, _, err := b.s.GetEvent(t.Context(), "late"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the event: %v", err)
	}
	b.complete(store.Claimed{Lease: lease})
}

// A caller's statement that ends the transaction is found out, and nothing of
// the store's runs outside of it.
func TestStatementEndsTransaction(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	for _, word := range []string{"COMMIT", "ROLLBACK"} {
		for _, writes := range []bool{true, false} {
			err := b.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
				if _, err := sqlite.Tx(ctx).ExecContext(ctx, word); err != nil {
					return err
				}
				if !writes {
					return nil
				}
				_, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("late", "", "h")}, b.now)
				return err
			})
			if !errors.Is(err, store.ErrTxDone) || !errors.Is(err, store.ErrOutcomeUnknown) {
				t.Errorf("%s, append afterwards: %t: %v", word, writes, err)
			}
		}
	}
	if _, _, err := b.s.GetEvent(t.Context(), "late"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the event: %v", err)
	}
	b.publish(b.event("next", "", "h"))
}

// What is handed out for transactions that have ended is one and the same, so
// that nothing is left behind for each; who ends it takes it from nobody.
func TestTxAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	kept := make([]context.Context, 2)
	for i := range kept {
		if err := b.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, _ store.Tx) error {
			kept[i] = ctx //nolint:fatcontext // the test keeps a context too long, on purpose
			return nil
		}); err != nil {
			t.Fatalf("transact: %v", err)
		}
	}
	if sqlite.Tx(kept[0]) != sqlite.Tx(kept[1]) {
		t.Error("each has one of its own")
	}
	for range 2 {
		for _, ctx := range kept {
			if _, err := sqlite.Tx(ctx).ExecContext(t.Context(), `SELECT 1`); !errors.Is(err, store.ErrTxDone) {
				t.Errorf("after the end: %v", err)
			}
		}
		if err := sqlite.Tx(kept[0]).Rollback(); err != nil {
			t.Errorf("roll back: %v", err)
		}
	}
}

// The end of a context is no reason to panic: the transaction is there.
func TestStoreTxAfterContext(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	for _, lazy := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		err := b.s.Transact(ctx, store.TxOptions{Lazy: lazy}, func(ctx context.Context, _ store.Tx) error {
			cancel()
			_, err := b.s.Tx(ctx).ExecContext(ctx, `SELECT 1`)
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("lazy %t: %v", lazy, err)
		}
	}
}

// What would wait for the transaction that it is called in fails at once.
func TestNestedWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	nothing := func(context.Context, store.Tx) error { return nil }
	err := b.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, _ store.Tx) error {
		for name, err := range map[string]error{
			"transact": b.s.Transact(ctx, store.TxOptions{}, nothing),
			"pause":    b.s.PauseHandler(ctx, "h", true, b.now),
		} {
			if !errors.Is(err, store.ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("the outer transaction: %v", err)
	}
	err = b.s.Transact(t.Context(), store.TxOptions{Lazy: true}, func(ctx context.Context, _ store.Tx) error {
		return b.s.Transact(ctx, store.TxOptions{}, nothing)
	})
	if err != nil {
		t.Errorf("inside of a lazy one that was not used: %v", err)
	}
}
