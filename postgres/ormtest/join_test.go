package ormtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// S2 B3 P1: what is published in a transaction of the library is there when it commits, and only then.
func TestCommitAndRollback(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l library) {
		t.Helper()
		b := newBed(t, postgres.Config{}, nil)
		h := l.open(t, b.url)
		for _, commit := range []bool{true, false} {
			prefix := map[bool]string{true: "kept-", false: "undone-"}[commit]
			tx := h.open(t)
			joined := tx.join()
			// One by one and many at once, with few keys, many keys and none: each is another statement.
			var many []relaybus.Message
			for i := range 100 {
				id := fmt.Sprint(prefix, "many-", i)
				options := [][]relaybus.PublishOption{nil, {relaybus.Key("k")}, {relaybus.Key(id)}}[i%3]
				many = append(many, order(id, append(options, relaybus.Header("h", `a"b\c`))...))
			}
			for _, messages := range [][]relaybus.Message{
				{order(prefix + "one")}, {order(prefix+"keyed", relaybus.Key("k"))}, many[:10], many[10:],
			} {
				if err := b.PublishTx(t.Context(), joined, messages...); err != nil {
					t.Fatalf("publish: %v", err)
				}
			}
			if err := tx.insert(t.Context(), prefix+"row"); err != nil {
				t.Fatalf("insert: %v", err)
			}
			b.wantHandled()
			end := tx.rollback
			if commit {
				end = tx.commit
			}
			if err := end(); err != nil {
				t.Fatalf("end: %v", err)
			}
			var want []string
			if commit {
				want = append(want, "kept-one", "kept-keyed")
				for i := range many {
					want = append(want, fmt.Sprint("kept-many-", i))
				}
			}
			b.wantHandled(want...)
			b.wantOrders("kept-row")
		}
	})
}

// B3: nested work of the library is a savepoint, and what was published in it goes with it.
func TestSavepoint(t *testing.T) {
	t.Parallel()
	failed := errors.New("nested work failed")
	each(t, func(t *testing.T, l library) {
		t.Helper()
		b := newBed(t, postgres.Config{}, nil)
		tx := l.open(t, b.url).open(t)
		if tx.nested == nil {
			// ent has no nested transactions; it is the one library without.
			if l.name != "ent with pgx" && l.name != "ent with lib/pq" {
				t.Error("the library has savepoints")
			}
			return
		}
		work := func(on *transaction, id string) error {
			return errors.Join(b.PublishTx(t.Context(), on.join(), order(id, relaybus.Key("k"))), on.insert(t.Context(), id))
		}
		if err := work(tx, "outer"); err != nil {
			t.Fatalf("outer: %v", err)
		}
		err := tx.nested(t.Context(), func(inner *transaction) error { return errors.Join(work(inner, "undone"), failed) })
		if !errors.Is(err, failed) {
			t.Fatalf("nested work that fails: %v", err)
		}
		if err := tx.nested(t.Context(), func(inner *transaction) error { return work(inner, "inner") }); err != nil {
			t.Fatalf("nested: %v", err)
		}
		// A savepoint also ends what an error of the database has done to the transaction.
		err = tx.nested(t.Context(), func(inner *transaction) error {
			if err := inner.insert(t.Context(), "outer"); err == nil {
				t.Error("a row was inserted twice")
			}
			err := b.PublishTx(t.Context(), inner.join(), order("aborted"))
			if !errors.Is(err, relaybus.ErrTxDone) {
				t.Errorf("publish in an aborted transaction: %v", err)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatalf("nested work that the database refuses: %v", err)
		}
		if err := work(tx, "after"); err != nil {
			t.Fatalf("after nested work: %v", err)
		}
		if err := tx.commit(); err != nil {
			t.Fatalf("commit: %v", err)
		}
		b.wantHandled("outer", "inner", "after")
		b.wantOrders("outer", "inner", "after")
	})
}

// B3: without a transaction nothing is published.
func TestForgottenTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l library) {
		t.Helper()
		b := newBed(t, postgres.Config{}, nil)
		h := l.open(t, b.url)
		tx := h.open(t) // It is open, and nobody hands it on.
		if err := b.Publish(t.Context(), order("lost")); !errors.Is(err, relaybus.ErrNoTransaction) {
			t.Errorf("publish without a transaction: %v", err)
		}
		if h.outside != nil {
			if err := b.PublishTx(t.Context(), h.outside(), order("lost")); !errors.Is(err, relaybus.ErrNoTransaction) {
				t.Errorf("publish on the handle instead of a transaction: %v", err)
			}
		}
		if err := tx.commit(); err != nil {
			t.Errorf("commit: %v", err)
		}
		b.wantHandled()
	})
}

// B3: a finished transaction is refused, and never becomes an autocommit.
func TestFinishedTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l library) {
		t.Helper()
		b := newBed(t, postgres.Config{}, nil)
		h := l.open(t, b.url)
		for _, end := range []string{"commit", "rollback"} {
			for _, before := range []bool{true, false} {
				tx := h.open(t)
				joined := tx.join()
				if before {
					if err := b.PublishTx(t.Context(), joined, order(end)); err != nil {
						t.Fatalf("publish: %v", err)
					}
				}
				if err := map[string]func() error{"commit": tx.commit, "rollback": tx.rollback}[end](); err != nil {
					t.Fatalf("%s: %v", end, err)
				}
				for name, tx := range map[string]store.Tx{"the same": joined, "joined afterwards": tx.join()} {
					err := b.PublishTx(t.Context(), tx, order("late"))
					if typed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(typed, store.ErrTxDone) {
						t.Errorf("%s after %s: %v", name, end, err)
					}
				}
			}
		}
		b.wantHandled("commit")
	})
}

// B3: a transaction of another database is refused, and stays the caller's.
func TestForeignTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l library) {
		t.Helper()
		b := newBed(t, postgres.Config{}, nil)
		other := newBed(t, postgres.Config{}, nil)
		prefixed := newBed(t, postgres.Config{Prefix: "mine_"}, nil)
		for name, url := range map[string]string{"set up": other.url, "without tables": newDatabaseURL(t), "other prefix": prefixed.url} {
			tx := l.open(t, url).open(t)
			if err := tx.insert(t.Context(), "a"); err != nil {
				t.Fatalf("%s: insert: %v", name, err)
			}
			joined := tx.join()
			for range 2 {
				err := b.PublishTx(t.Context(), joined, order("foreign"))
				if typed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(typed, store.ErrForeignTx) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := tx.insert(t.Context(), "b"); err != nil {
				t.Errorf("%s: the transaction is of no use after the refusal: %v", name, err)
			}
			if name == "set up" {
				if err := other.PublishTx(t.Context(), joined, order("own")); err != nil {
					t.Errorf("publish on the bus of the right database: %v", err)
				}
			}
			if err := tx.commit(); err != nil {
				t.Errorf("%s: commit: %v", name, err)
			}
		}
		b.wantHandled()
		other.wantHandled("own")
		other.wantOrders("a", "b")
		prefixed.wantOrders("a", "b")
	})
}

type activeKey struct{}

// B3: a resolver finds the library's active transaction in the context.
func TestResolver(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l library) {
		t.Helper()
		b := newBed(t, postgres.Config{}, func(c *relaybus.Config) {
			c.Resolver = func(ctx context.Context) (store.Tx, error) {
				if tx, ok := ctx.Value(activeKey{}).(*transaction); ok {
					return tx.join(), nil
				}
				return nil, nil
			}
		})
		h := l.open(t, b.url)
		tx := h.open(t)
		ctx := context.WithValue(t.Context(), activeKey{}, tx)
		if err := b.Publish(ctx, order("found")); err != nil {
			t.Errorf("publish: %v", err)
		}
		// The bus joins the same transaction in its own way, and finds that it is the same.
		err := b.Transaction(ctx, func(ctx context.Context) error {
			return errors.Join(b.Publish(ctx, order("inside")), b.PublishTx(ctx, tx.join(), order("explicit")))
		})
		if err != nil {
			t.Errorf("transaction: %v", err)
		}
		if err := b.Publish(t.Context(), order("lost")); !errors.Is(err, relaybus.ErrNoTransaction) {
			t.Errorf("publish without a transaction: %v", err)
		}
		// Another transaction beside it is ambiguous.
		err = b.Transaction(t.Context(), func(ctx context.Context) error {
			return b.Publish(context.WithValue(ctx, activeKey{}, tx), order("which"))
		})
		if !errors.Is(err, relaybus.ErrAmbiguousTx) {
			t.Errorf("publish with two transactions: %v", err)
		}
		b.wantHandled()
		if err := tx.commit(); err != nil {
			t.Fatalf("commit: %v", err)
		}
		b.wantHandled("found", "inside", "explicit")
	})
}

// logged is a transaction as an application may wrap one: a type that can't be compared.
type logged struct {
	inner *sql.Tx
	log   func(args ...any)
}

func (l logged) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	l.log(query)
	return l.inner.ExecContext(ctx, query, args...)
}

func (l logged) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return l.inner.QueryContext(ctx, query, args...)
}

func (l logged) Commit() error   { return l.inner.Commit() }
func (l logged) Rollback() error { return l.inner.Rollback() }

// B3: any type with the methods of a transaction joins; one that can't be compared is known again by what it was joined as.
func TestWrappedTransaction(t *testing.T) {
	t.Parallel()
	var resolved store.Tx
	b := newBed(t, postgres.Config{}, func(c *relaybus.Config) {
		c.Resolver = func(context.Context) (store.Tx, error) { return resolved, nil }
	})
	tx, err := openDB(t, "pgx", b.url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	resolved = postgres.JoinSQL(logged{tx, t.Log})
	err = b.Transaction(t.Context(), func(ctx context.Context) error {
		return errors.Join(b.Publish(ctx, order("a")), b.PublishTx(ctx, resolved, order("b")))
	})
	if err != nil {
		t.Errorf("publish: %v", err)
	}
	err = b.Transaction(t.Context(), func(ctx context.Context) error {
		return b.PublishTx(ctx, postgres.JoinSQL(logged{tx, t.Log}), order("c"))
	})
	if !errors.Is(err, relaybus.ErrAmbiguousTx) {
		t.Errorf("publish in the same transaction, joined once more: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	b.wantHandled("a", "b")
}

// B6 S3: a known id adds nothing, in the same transaction and in another one.
func TestPublishAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l library) {
		t.Helper()
		b := newBed(t, postgres.Config{}, nil)
		h := l.open(t, b.url)
		for range 2 {
			tx := h.open(t)
			joined := tx.join()
			for _, messages := range [][]relaybus.Message{
				{order("a")}, {order("a")}, {order("a"), order("b", relaybus.Key("k")), order("b", relaybus.Key("k"))},
			} {
				if err := b.PublishTx(t.Context(), joined, messages...); err != nil {
					t.Fatalf("publish: %v", err)
				}
			}
			if err := tx.commit(); err != nil {
				t.Fatalf("commit: %v", err)
			}
		}
		b.wantHandled("a", "b")
	})
}
