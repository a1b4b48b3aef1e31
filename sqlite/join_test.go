package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	modernc "modernc.org/sqlite"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// plain opens a handle that knows nothing of the store.
func plain(t *testing.T, path string) *sql.DB {
	t.Helper()
	connector, err := modernc.NewConnector("file:" + path + "?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

func beginOn(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	return tx
}

// B3: a transaction on a handle of the caller's own, on the same file.
func TestJoinOwnHandle(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	db := plain(t, b.path)
	for _, commit := range []bool{true, false} {
		tx := beginOn(t, db)
		joined := sqlite.Join(tx)
		if err := b.s.CheckTx(t.Context(), joined); err != nil {
			t.Fatalf("check: %v", err)
		}
		if _, err := b.s.Append(t.Context(), joined, []store.NewEvent{b.event(map[bool]string{true: "kept", false: "undone"}[commit], "", "h")}, b.now); err != nil {
			t.Fatalf("append: %v", err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatalf("end: %v", err)
		}
		if err := b.s.CheckTx(t.Context(), joined); !errors.Is(err, store.ErrTxDone) {
			t.Errorf("check after the end: %v", err)
		}
		if _, err := b.s.Append(t.Context(), joined, []store.NewEvent{b.event("late", "", "h")}, b.now); !errors.Is(err, store.ErrTxDone) {
			t.Errorf("append after the end: %v", err)
		}
	}
	got := b.claim(10, "h")
	if len(got) != 1 || got[0].Event.ID != "kept" {
		t.Errorf("claimed %v", got)
	}
	// A completion in such a transaction ends the claim, too.
	tx := beginOn(t, db)
	if err := b.s.CompleteTx(t.Context(), sqlite.Join(tx), "w", got[0].Lease, b.now); err != nil {
		t.Fatalf("complete: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	b.publish(b.event("next", "", "h"))
	if got := b.claim(10, "h"); len(got) != 1 || got[0].Event.ID != "next" {
		t.Errorf("claimed %v after a joined completion", got)
	}
}

// B3 S15: a transaction of another database is refused, and can go on.
func TestJoinForeign(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	other := newBed(t, sqlite.Config{})
	claimed := func() store.Lease {
		b.publish(b.event("e", "", "h"))
		return b.claim(1, "h")[0].Lease
	}()
	databases := map[string]*sql.DB{
		"set up":        other.s.DB(),
		"without table": plain(t, filepath.Join(t.TempDir(), "empty.db")),
		"other prefix":  newBedAt(t, filepath.Join(t.TempDir(), "prefix.db"), sqlite.Config{Prefix: "mine_"}).s.DB(),
	}
	for name, db := range databases {
		if _, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id TEXT)`); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tx := beginOn(t, db)
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO orders VALUES ('a')`); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		joined := sqlite.Join(tx)
		calls := map[string]error{
			"check":    b.s.CheckTx(t.Context(), joined),
			"complete": b.s.CompleteTx(t.Context(), joined, "w", claimed, b.now),
		}
		_, calls["append"] = b.s.Append(t.Context(), joined, []store.NewEvent{b.event("x", "", "h")}, b.now)
		for call, err := range calls {
			if typed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(typed, store.ErrForeignTx) {
				t.Errorf("%s, %s: %v", name, call, err)
			}
		}
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO orders VALUES ('b')`); err != nil {
			t.Errorf("%s: the transaction is not usable after the refusal: %v", name, err)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("%s: commit: %v", name, err)
		}
		var n int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&n); err != nil || n != 2 {
			t.Errorf("%s: %d rows, %v", name, n, err)
		}
	}
	b.complete(store.Claimed{Lease: claimed})
}

// B4: joining costs one statement, and then one for each call.
func TestJoinCost(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.publish(b.event("warm", "", "h"))
	tx := beginOn(t, b.s.DB())
	defer func() {
		if err := tx.Rollback(); err != nil {
			t.Errorf("roll back: %v", err)
		}
	}()
	joined := sqlite.Join(tx)
	if err := b.s.CheckTx(t.Context(), joined); err != nil {
		t.Fatalf("check: %v", err)
	}
	before := sqlite.Statements(b.s)
	if err := b.s.CheckTx(t.Context(), joined); err != nil {
		t.Fatalf("check: %v", err)
	}
	if n := sqlite.Statements(b.s) - before; n > 1 {
		t.Errorf("a second check cost %d statements", n)
	}
}

// A part of an append that fails is taken back, and the caller's transaction
// goes on.
func TestJoinFailedAppend(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.exec(`CREATE TRIGGER no BEFORE INSERT ON relaybus_events WHEN new.id = 'bad' BEGIN SELECT raise(ABORT, 'no'); END`)
	tx := beginOn(t, b.s.DB())
	joined := sqlite.Join(tx)
	if _, err := b.s.Append(t.Context(), joined, []store.NewEvent{b.event("a", "", "h")}, b.now); err != nil {
		t.Fatalf("append: %v", err)
	}
	if _, err := b.s.Append(t.Context(), joined, []store.NewEvent{b.event("b", "", "new"), b.event("bad", "", "h")}, b.now); err == nil {
		t.Fatal("no error")
	}
	if _, err := b.s.Append(t.Context(), joined, []store.NewEvent{b.event("c", "", "h")}, b.now); err != nil {
		t.Fatalf("append after a failure: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	if got := b.claim(10, "h", "new"); len(got) != 2 {
		t.Errorf("claimed %v, want a and c", got)
	}
	// In a transaction of the store's own, which would commit the half.
	err := b.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("d", "", "h"), b.event("bad", "", "h")}, b.now); err == nil {
			t.Error("no error")
		}
		return nil
	})
	if err == nil {
		t.Error("a transaction with half of an append was committed")
	}
	if got := b.claim(10, "h", "new"); len(got) != 0 {
		t.Errorf("claimed %v", got)
	}
}
