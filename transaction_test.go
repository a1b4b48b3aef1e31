package relaybus_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// B7: a transaction past its budget is rolled back, also when its function
// ignores its context.
func TestTransactionBudget(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx context.Context) error{
		"heeds its context":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"ignores its context": func(context.Context) error { pass(6 * time.Second); return nil },
		"fails on its own": func(ctx context.Context) error {
			<-ctx.Done()
			return errBoom
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, nil, things("h", ignore))
				undone := false
				err := b.Transaction(t.Context(), func(ctx context.Context) error {
					memstore.Tx(ctx).OnRollback(func() { undone = true })
					return errors.Join(b.Publish(ctx, raw("e-1")), fn(ctx))
				})
				var late *relaybus.TransactionTimeoutError
				if !errors.As(err, &late) || late.Budget != 5*time.Second || !errors.Is(err, relaybus.ErrTimeout) {
					t.Errorf("Transaction returned %v", err)
				}
				if name == "fails on its own" && !errors.Is(err, errBoom) {
					t.Errorf("the function's error is gone: %v", err)
				}
				if relaybus.OutcomeOf(err) != relaybus.NotCommitted || !undone || b.drain() != 0 || len(b.seen.took()) != 0 {
					t.Error("something of it was kept")
				}
			})
		})
	}
}

// The end of the caller's context is the caller's, not a budget.
func TestTransactionContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		ctx, cancel := context.WithCancelCause(t.Context())
		err := b.Transaction(ctx, func(ctx context.Context) error {
			defer cancel(errBoom)
			return b.Publish(ctx, raw("e-1"))
		})
		var late *relaybus.TransactionTimeoutError
		if !errors.Is(err, errBoom) || errors.As(err, &late) || b.drain() != 0 {
			t.Errorf("Transaction returned %v", err)
		}
	})
}

func TestTransactionNests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		err := b.Transaction(t.Context(), func(ctx context.Context) error {
			if err := b.Publish(ctx, raw("e-1")); err != nil {
				return err
			}
			err := b.Transaction(ctx, func(ctx context.Context) error { return b.Publish(ctx, raw("e-2")) })
			if n, _ := b.RunOnce(context.WithoutCancel(ctx)); n != 0 {
				t.Error("something was committed before the outer transaction")
			}
			return err
		})
		if err != nil || b.drain() != 2 {
			t.Errorf("nested: %v", err)
		}
		if n := b.store.count(opTransact); n != 1 {
			t.Errorf("%d transactions, want 1", n)
		}
		b.seen.took()

		err = b.Transaction(t.Context(), func(ctx context.Context) error {
			_ = b.Transaction(ctx, func(context.Context) error { return errBoom })
			return b.Publish(ctx, raw("e-3"))
		})
		if !errors.Is(err, relaybus.ErrRolledBack) || !errors.Is(err, errBoom) || b.drain() != 0 {
			t.Errorf("an inner error that the outer function ignored: %v", err)
		}
		err = b.Transaction(t.Context(), func(ctx context.Context) error {
			func() {
				defer func() { _ = recover() }()
				_ = b.Transaction(ctx, func(context.Context) error { panic("inner") })
			}()
			return b.Publish(ctx, raw("e-4"))
		})
		if !errors.Is(err, relaybus.ErrRolledBack) || b.drain() != 0 {
			t.Errorf("an inner panic that the outer function recovered: %v", err)
		}
		if seen := b.seen.took(); len(seen) != 0 {
			t.Errorf("hooks: %q", seen)
		}
	})
}

func TestTransactionPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		func() {
			defer func() {
				if value := recover(); value != "mine" {
					t.Errorf("recovered %v", value)
				}
			}()
			_ = b.Transaction(t.Context(), func(ctx context.Context) error {
				_ = b.Publish(ctx, raw("e-1"))
				panic("mine")
			})
		}()
		if b.drain() != 0 {
			t.Error("a transaction that panicked was committed")
		}
		if err := b.Transaction(t.Context(), nil); !errors.Is(err, relaybus.ErrInvalidArgument) {
			t.Errorf("a nil function: %v", err)
		}
	})
}

type txKey struct{}

func resolver(ctx context.Context) (store.Tx, error) {
	tx, _ := ctx.Value(txKey{}).(store.Tx)
	return tx, nil
}

// B3, Z3: an ORM's transaction is found by the resolver.
func TestResolver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) { c.Resolver = resolver; c.TransactionMode = relaybus.Optional }, things("h", ignore))
		tx := b.store.Begin()
		ctx := context.WithValue(t.Context(), txKey{}, store.Tx(tx))
		if err := b.Publish(ctx, raw("e-1")); err != nil {
			t.Fatalf("Publish: %v", err)
		}
		// A transaction of the caller's own: the caller decides over it.
		if err := b.Transaction(ctx, func(ctx context.Context) error { return b.Publish(ctx, raw("e-2")) }); err != nil {
			t.Fatalf("Transaction: %v", err)
		}
		if err := b.Transaction(ctx, func(context.Context) error { return errBoom }); !errors.Is(err, errBoom) {
			t.Errorf("Transaction: %v", err)
		}
		if seen := b.seen.took(); !slices.Equal(seen, []string{"published [e-1] 1 staged", "published [e-2] 1 staged"}) {
			t.Errorf("hooks: %q", seen)
		}
		if b.drain() != 0 {
			t.Error("handled before the commit")
		}
		if err := tx.Commit(ctx); err != nil || b.drain() != 2 {
			t.Errorf("after the commit: %v", err)
		}
		if err := b.Publish(ctx, raw("e-3")); !errors.Is(err, relaybus.ErrTxDone) {
			t.Errorf("a finished one: %v", err)
		}
		foreign := context.WithValue(t.Context(), txKey{}, store.Tx(memstore.New(memstore.Config{}).Begin()))
		if err := b.Publish(foreign, raw("e-3")); !errors.Is(err, relaybus.ErrForeignTx) {
			t.Errorf("another database's: %v", err)
		}
		none := context.WithValue(t.Context(), txKey{}, store.Tx((*memstore.Transaction)(nil)))
		if err := b.Publish(none, raw("e-3")); err != nil {
			t.Errorf("a nil pointer stands for none: %v", err)
		}
		err := b.Transaction(t.Context(), func(ctx context.Context) error {
			other := b.store.Begin()
			defer func() { _ = other.Rollback() }()
			same := context.WithValue(ctx, txKey{}, store.TxsFrom(ctx)[0])
			if err := b.Publish(same, raw("e-4")); err != nil {
				t.Errorf("the same one twice: %v", err)
			}
			return b.Publish(context.WithValue(ctx, txKey{}, store.Tx(other)), raw("e-4"))
		})
		if !errors.Is(err, relaybus.ErrAmbiguousTx) {
			t.Errorf("two different ones: %v", err)
		}
	})
}

// F27: a resolver that fails or panics is an error, never an autocommit.
func TestResolverFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		panics := false
		b := newBed(t, func(c *relaybus.Config) {
			c.TransactionMode = relaybus.Optional
			c.Resolver = func(context.Context) (store.Tx, error) {
				if panics {
					panic("secret")
				}
				return nil, errBoom
			}
		}, things("h", ignore))
		if err := b.Publish(t.Context(), raw("e-1")); !errors.Is(err, errBoom) {
			t.Errorf("a failing resolver: %v", err)
		}
		panics = true
		if err := b.Publish(t.Context(), raw("e-1")); err == nil {
			t.Error("a panicking resolver: no error")
		}
		if n := b.store.count(opTransact); n != 0 {
			t.Errorf("%d transactions were opened", n)
		}
	})
}

// Z5: without a word of the caller, a joined publish is found by quick polls;
// with it, at once.
func TestCommittedAndNudges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed))
		deaf(b)
		b.start()
		synctest.Wait()
		for _, c := range []struct{ commit, handled time.Duration }{
			{1 * time.Millisecond, 5 * time.Millisecond},
			{6 * time.Millisecond, 25 * time.Millisecond},
			{26 * time.Millisecond, 105 * time.Millisecond},
			{106 * time.Millisecond, 425 * time.Millisecond},
		} {
			pass(1100 * time.Millisecond) // out of step with the idle poll
			began := time.Now()
			tx := b.store.Begin()
			if err := b.PublishTx(t.Context(), tx, relaybus.Raw("thing.done", []byte(`1`))); err != nil {
				t.Fatal(err)
			}
			pass(c.commit)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			call := d.next()
			if took := time.Since(began); took > c.handled {
				t.Errorf("committed after %v, handled after %v, want %v", c.commit, took, c.handled)
			}
			call.reply <- nil
		}
		tx := b.store.Begin()
		if err := b.PublishTx(t.Context(), tx, relaybus.Raw("thing.done", []byte(`1`))); err != nil {
			t.Fatal(err)
		}
		pass(450 * time.Millisecond) // the quick polls are over
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b.Committed()
		d.next().reply <- nil
		if took := time.Since(began); took != 0 {
			t.Errorf("after Committed it took %v", took)
		}
	})
}

// A transaction that several publishes restart must not lose its quick polls,
// nor double them.
func TestNudgesOfManyPublishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) { c.PollInterval = time.Hour }, things("h", ignore))
		deaf(b)
		b.start()
		synctest.Wait()
		b.store.reset()
		tx := b.store.Begin()
		for range 30 {
			if err := b.PublishTx(t.Context(), tx, relaybus.Raw("thing.done", []byte(`1`))); err != nil {
				t.Fatal(err)
			}
			pass(3 * time.Millisecond)
		}
		pass(time.Minute)
		// One each 5 or 6 ms for 90 ms, and then the rest of one series.
		if n := b.store.count(opClaim); n < 15 || n > 22 {
			t.Errorf("%d claims", n)
		}
	})
}
