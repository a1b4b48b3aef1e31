package relaybus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// Z9: on a store with one write transaction a busy transactional handler must
// not keep another one, and busy plain ones must not keep a transactional one,
// from having its turn.
func TestTurnBehindSerialTransactions(t *testing.T) {
	t.Parallel()
	busy := func(ctx context.Context, _ *relaybus.RawEvent) error {
		pass(time.Millisecond)
		return ctx.Err()
	}
	for _, c := range []struct {
		name    string
		busy    int
		options []relaybus.HandlerOption
	}{
		{"beside a transactional one", 1, []relaybus.HandlerOption{relaybus.Transactional()}},
		{"beside plain ones", 12, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, err := relaybus.New(serial{memstore.New(memstore.Config{})}, quiet())
				if err != nil {
					t.Fatal(err)
				}
				ran := make(chan time.Time, 1)
				handlers := []relaybus.Handler{relaybus.Handle("quiet", []string{"rare"}, func(context.Context, *relaybus.RawEvent) error {
					ran <- time.Now()
					return nil
				}, relaybus.Transactional())}
				for i := range c.busy {
					handlers = append(handlers, things(fmt.Sprintf("busy-%d", i), busy, c.options...))
				}
				if err := b.Subscribe(handlers...); err != nil {
					t.Fatal(err)
				}
				publish := func(messages ...relaybus.Message) {
					t.Helper()
					if err := b.Transaction(t.Context(), func(ctx context.Context) error { return b.Publish(ctx, messages...) }); err != nil {
						t.Fatal(err)
					}
				}
				publish(many(1000)...)
				if err := b.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				pass(100 * time.Millisecond)
				began := time.Now()
				publish(relaybus.Raw("rare", []byte("1")))
				if waited := (<-ran).Sub(began); waited > 100*time.Millisecond {
					t.Errorf("its turn came after %v", waited)
				}
				if err := b.Stop(context.WithoutCancel(t.Context())); err != nil {
					t.Errorf("Stop: %v", err)
				}
			})
		})
	}
}

// The probe of a handler that paused is not starved by busy handlers.
func TestTurnOfProbe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ slots, busy int }{{1, 1}, {2, 4}} {
		t.Run(fmt.Sprintf("%d slots, %d busy", c.slots, c.busy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs []time.Time
				handlers := []relaybus.Handler{relaybus.Handle("probed", []string{"rare"}, func(context.Context, *relaybus.RawEvent) error {
					if runs = append(runs, time.Now()); len(runs) == 1 {
						return relaybus.Unavailable(errBoom)
					}
					return nil
				})}
				for i := range c.busy {
					handlers = append(handlers, things(fmt.Sprintf("busy-%d", i), func(context.Context, *relaybus.RawEvent) error {
						pass(5 * time.Millisecond)
						return nil
					}))
				}
				b := newBed(t, func(c2 *relaybus.Config) { c2.Concurrency, c2.Hooks = c.slots, nil }, handlers...)
				b.publish(relaybus.Raw("rare", []byte("1")))
				b.publish(many(600)...)
				b.start()
				pass(2 * time.Second)
				if len(runs) != 2 {
					t.Fatalf("%d runs in 2 s", len(runs))
				}
				if waited := runs[1].Sub(runs[0]); waited > 1200*time.Millisecond {
					t.Errorf("the probe came after %v", waited)
				}
			})
		})
	}
}

// A transactional handler's own error may wrap a lease of somebody else: it is
// an ordinary failure.
func TestForeignLeaseLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		b := newBed(t, nil, things("h", func(context.Context, *relaybus.RawEvent) error {
			if runs++; runs == 1 {
				return fmt.Errorf("another bus: %w", relaybus.ErrLeaseLost)
			}
			return nil
		}, relaybus.Transactional())).start()
		b.publish(raw("e-1"))
		pass(time.Minute)
		if runs != 2 || b.seen.count("retried h e-1 1") != 1 || b.seen.count("succeeded h e-1 2") != 1 {
			t.Errorf("%d runs, hooks were told %q", runs, b.seen.took())
		}
	})
}

// A lease that the store says is lost ends the claim without a settlement.
func TestLeaseLostAtCompletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore, relaybus.Transactional()))
		b.store.failBefore(opCompleteTx, times(1, relaybus.ErrLeaseLost))
		b.start()
		b.publish(raw("e-1"))
		synctest.Wait()
		if n := b.seen.count("lost h e-1 1"); n != 1 || b.store.count(opSettle) != 0 {
			t.Errorf("told %d times, %d settlements", n, b.store.count(opSettle))
		}
	})
}

// goexitHook ends the goroutine that calls it.
type goexitHook struct{ exit func() }

func (g goexitHook) OnStarted(relaybus.Attempt)   { g.exit() }
func (g goexitHook) OnSucceeded(relaybus.Attempt) { g.exit() }
func (g goexitHook) OnRetried(relaybus.Attempt)   { g.exit() }
func (g goexitHook) OnLeaseLost(relaybus.Attempt) { g.exit() }
func (g goexitHook) OnClaimed(relaybus.Claimed)   { g.exit() }
func (g goexitHook) OnSettled(relaybus.StoreCall) { g.exit() }
func (g goexitHook) OnRenewed(relaybus.StoreCall) { g.exit() }
func (g goexitHook) OnPurged(relaybus.Purged)     { g.exit() }
func (g goexitHook) OnReleased(relaybus.Attempt)  { g.exit() }
func (g goexitHook) OnBuried(relaybus.Attempt)    { g.exit() }
func (goexitHook) OnOrphaned(relaybus.Orphaned)   {}

// A hook that ends its goroutine changes nothing, and is logged.
func TestHookGoexit(t *testing.T) {
	t.Parallel()
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %t", transactional), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var options []relaybus.HandlerOption
				if transactional {
					options = append(options, relaybus.Transactional())
				}
				failed := false
				slow := func(_ context.Context, e *relaybus.RawEvent) error {
					pass(time.Minute) // so that leases are renewed, if it may
					if e.ID == "e-1" && !failed {
						failed = true
						return errBoom
					}
					return nil
				}
				if transactional {
					slow = func(context.Context, *relaybus.RawEvent) error { return nil }
				}
				log := newLogBook()
				b := newBed(t, func(c *relaybus.Config) {
					c.Hooks, c.Logger = []relaybus.Hook{goexitHook{exit: (&testing.T{}).SkipNow}}, log.logger()
				}, things("h", slow, options...)).start()
				b.publish(raw("e-1"), raw("e-2"))
				pass(10 * time.Minute)
				b.publish(raw("e-3"))
				pass(10 * time.Minute)
				for _, h := range b.stats().Handlers {
					if h.Pending+h.Running+h.Dead > 0 {
						t.Errorf("left: %+v", h)
					}
				}
				if log.count("a hook panicked") == 0 {
					t.Error("it is not logged")
				}
				if err := b.Stop(t.Context()); err != nil && !errors.Is(err, relaybus.ErrStopped) {
					t.Errorf("Stop: %v", err)
				}
			})
		})
	}
}
