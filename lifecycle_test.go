package relaybus_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// B15, F06: the states of a bus only move forward.
func TestLifecycleStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := newBed(t, nil, things("h", ignore))
		if err := b.Stop(ctx); !errors.Is(err, relaybus.ErrNotStarted) {
			t.Errorf("Stop before Start: %v", err)
		}
		if err := b.Ready(); !errors.Is(err, relaybus.ErrNotStarted) {
			t.Errorf("Ready before Start: %v", err)
		}
		if err := b.Start(ctx); err != nil {
			t.Fatalf("Start after a refused Stop: %v", err)
		}
		if err := b.Ready(); err != nil {
			t.Errorf("Ready: %v", err)
		}
		if err := b.Start(ctx); !errors.Is(err, relaybus.ErrAlreadyStarted) {
			t.Errorf("Start twice: %v", err)
		}
		if err := b.Subscribe(things("g", ignore)); !errors.Is(err, relaybus.ErrAlreadyStarted) {
			t.Errorf("Subscribe after Start: %v", err)
		}
		if err := b.Stop(ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if err := b.Stop(ctx); err != nil {
			t.Errorf("Stop twice: %v", err)
		}
		for name, f := range map[string]func() error{
			"start":       func() error { return b.Start(ctx) },
			"subscribe":   func() error { return b.Subscribe(things("g", ignore)) },
			"publish":     func() error { return b.Publish(ctx, raw("e-1")) },
			"publishTx":   func() error { return b.PublishTx(ctx, b.store.Begin(), raw("e-1")) },
			"transaction": func() error { return b.Transaction(ctx, func(context.Context) error { return nil }) },
			"run once":    func() error { _, err := b.RunOnce(ctx); return err },
			"drain":       func() error { _, err := b.Drain(ctx); return err },
			"list": func() error {
				_, err := b.ListDeliveries(ctx, relaybus.Filter{}, relaybus.Page{})
				return err
			},
			"statistics":    func() error { _, err := b.Statistics(ctx); return err },
			"event":         func() error { _, _, err := b.Event(ctx, "e"); return err },
			"requeue":       func() error { return b.Requeue(ctx, relaybus.DeliveryID{}) },
			"requeue where": func() error { _, err := b.RequeueWhere(ctx, relaybus.Filter{}); return err },
			"bury":          func() error { return b.Bury(ctx, relaybus.DeliveryID{}, "") },
			"reschedule":    func() error { return b.Reschedule(ctx, relaybus.DeliveryID{}, time.Now()) },
			"skip":          func() error { return b.Skip(ctx, relaybus.DeliveryID{}) },
			"cancel":        func() error { return b.Cancel(ctx, "e") },
			"pause":         func() error { return b.Pause(ctx, "h") },
			"resume":        func() error { return b.Resume(ctx, "h") },
			"retire":        func() error { return b.Retire(ctx, "h") },
			"drop":          func() error { _, err := b.Drop(ctx, "h"); return err },
			"catalog":       func() error { _, err := b.Catalog(ctx); return err },
			"orphans":       func() error { _, err := b.Orphans(ctx); return err },
			"purge":         func() error { _, err := b.PurgeExpired(ctx); return err },
		} {
			if err := f(); !errors.Is(err, relaybus.ErrStopped) {
				t.Errorf("%s after Stop: %v", name, err)
			}
		}
		b.Committed() // does nothing
	})
}

// F06: Stop, from several goroutines, with a start that its context ended.
func TestStopFromManyGoroutines(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, nil, things("h", func(ctx context.Context, _ *relaybus.RawEvent) error {
					<-ctx.Done()
					return ctx.Err()
				}))
				ctx, cancel := context.WithCancel(t.Context())
				if err := b.Start(ctx); err != nil {
					t.Fatal(err)
				}
				cancel() // it bounds the start alone
				b.publish(many(30)...)
				if i%2 == 0 {
					synctest.Wait()
				}
				stopCtx, stopped := context.WithTimeout(t.Context(), time.Duration(i+1)*100*time.Millisecond)
				defer stopped()
				began := time.Now()
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						if err := b.Stop(stopCtx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("Stop: %v", err)
						}
					})
				}
				wg.Go(func() { _ = b.Publish(t.Context(), raw("late")) })
				wg.Wait()
				if took := time.Since(began); took > 3100*time.Millisecond {
					t.Errorf("Stop took %v", took)
				}
			})
		})
	}
}

// B15: a stop waits for what runs, gives back what does not, charges nothing,
// and frees the lanes at once.
func TestStopWaitsAndGivesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{History: true})
		d, other := newDesk(t), newDesk(t)
		quick := true
		b := newBedOn(t, s, func(c *relaybus.Config) { c.Concurrency = 3 }, things("h", func(ctx context.Context, e *relaybus.RawEvent) error {
			if quick {
				return nil
			}
			return d.heed(ctx, e)
		}, relaybus.Concurrency(1)))
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.publish(many(50)...)
		synctest.Wait()
		quick = false
		for i := range 20 {
			b.publish(raw(fmt.Sprint("f-", i)))
		}
		running := d.next()
		synctest.Wait()
		if r := b.stats().Running; r < 2 {
			t.Fatalf("%d are claimed, want some ahead", r)
		}
		second := newBedOn(t, s.Instance(), nil, things("h", other.heed)).start()
		stopped := make(chan error)
		go func() { stopped <- b.Stop(t.Context()) }()
		synctest.Wait()
		if r := second.list(relaybus.Filter{Status: relaybus.StatusRunning}); len(r) < 1 || len(r) > 11 {
			t.Errorf("while it stops, %d run", len(r))
		}
		pass(10 * time.Second)
		running.reply <- nil
		if err := <-stopped; err != nil {
			t.Errorf("Stop: %v", err)
		}
		for range 19 {
			c := other.next()
			if c.event.Attempt != 1 {
				t.Errorf("%s was charged", c.event.ID)
			}
			c.reply <- nil
		}
	})
}

// F06, F28: a handler that outlasts the grace is cancelled, and one that ignores
// that is named; nothing is charged.
func TestStopGraceEnds(t *testing.T) {
	t.Parallel()
	for _, ignores := range []bool{false, true} {
		for _, transactional := range []bool{false, true} {
			t.Run(fmt.Sprintf("ignores %v transactional %v", ignores, transactional), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := memstore.New(memstore.Config{})
					d := newDesk(t)
					handle := d.heed
					if ignores {
						handle = d.handle
					}
					options := []relaybus.HandlerOption{relaybus.Timeout(20 * time.Second)}
					if transactional {
						options = append(options, relaybus.Transactional())
					}
					b := newBedOn(t, s, func(c *relaybus.Config) { c.ShutdownTimeout = 4 * time.Second }, things("slow", handle, options...))
					if err := b.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					b.publish(raw("e-1"))
					c := d.next()
					began := time.Now()
					err := b.Stop(t.Context())
					took := time.Since(began)
					var stop *relaybus.StopError
					if ignores {
						if !errors.As(err, &stop) || len(stop.Running) != 1 || stop.Running[0] != "slow" || !strings.Contains(err.Error(), "still running: slow") {
							t.Errorf("Stop: %v", err)
						}
					} else if err != nil {
						t.Errorf("Stop: %v", err)
					}
					if took < 4*time.Second || took > 5*time.Second {
						t.Errorf("Stop took %v", took)
					}
					if !errors.Is(context.Cause(c.ctx), relaybus.ErrShutdown) {
						t.Errorf("cause is %v", context.Cause(c.ctx))
					}
					after := newBedOn(t, s.Instance(), nil, things("slow", ignore))
					if d := after.only(relaybus.Filter{}); d.Status != relaybus.StatusPending || d.Attempts != 0 {
						t.Errorf("delivery is %+v", d)
					}
					if n := after.drain(); n != 1 {
						t.Errorf("%d run in the next process", n)
					}
					if ignores {
						c.reply <- nil // in the end it returns, and its goroutine ends
					}
				})
			})
		}
	}
}

// F06: a stop while the database is gone ends in time, and says so.
func TestStopWithoutDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, func(c *relaybus.Config) { c.ShutdownTimeout = 3 * time.Second }, things("h", d.heed))
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.publish(raw("e-1"))
		c := d.next()
		b.crash()
		c.reply <- nil
		began := time.Now()
		err := b.Stop(t.Context())
		var stop *relaybus.StopError
		if !errors.As(err, &stop) || stop.Unsettled != 1 || (!errors.Is(err, relaybus.ErrUnavailable) && !errors.Is(err, relaybus.ErrTimeout)) {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Stop took %v", took)
		}
	})
}

// F06: not even a call of the store that ignores its context keeps a stop from
// ending at its deadline.
func TestStopWithDeafStore(t *testing.T) {
	t.Parallel()
	for _, o := range []op{opClaim, opSettle, opExtend, opRelinquish, opHandlers, opPurge} {
		t.Run(string(o), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t)
				b := newBed(t, func(c *relaybus.Config) { c.Retention.Interval = time.Minute }, things("h", d.heed))
				if err := b.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.publish(raw("e-1"), raw("e-2"))
				c := d.next()
				b.store.failBefore(o, func(context.Context) error { pass(time.Hour); return unavailable() })
				c.reply <- nil
				pass(2 * time.Minute)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				err := b.Stop(ctx)
				if took := time.Since(began); (err == nil && o != opExtend) || took > 5*time.Second {
					t.Errorf("Stop took %v: %v", took, err)
				}
				pass(2 * time.Hour)
			})
		})
	}
}

// A stop does not sit out the wait after the store's last error.
func TestStopAfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed))
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.publish(raw("e-1"))
		b.store.failBefore(opSettle, func(context.Context) error { return unavailable() })
		d.next().reply <- nil
		pass(20 * time.Second)
		b.store.failBefore(opSettle, times(2, unavailable()))
		began := time.Now()
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("Stop took %v", took)
		}
		if s := newBedOn(t, b.store.Instance(), nil).stats(); s.Completed != 1 {
			t.Errorf("statistics are %+v", s)
		}
	})
}

// F06: a stop while a claim's reply is under way gives back what it brings.
func TestStopDuringClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		release := make(chan struct{})
		b.store.failAfter(opClaim, func(context.Context) error { <-release; return nil })
		b.publish(raw("e-1"))
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- b.Stop(t.Context()) }()
		synctest.Wait()
		close(release)
		if err := <-stopped; err != nil {
			t.Errorf("Stop: %v", err)
		}
		after := newBedOn(t, b.store.Instance(), nil)
		if d := after.only(relaybus.Filter{}); d.Status != relaybus.StatusPending || d.Attempts != 0 {
			t.Errorf("delivery is %+v", d)
		}
	})
}

// A failed start leaves the bus stopped for good, says why, and leaves nothing
// running.
func TestStartFails(t *testing.T) {
	t.Parallel()
	for _, o := range []op{opSetup, opHandlers} {
		t.Run(string(o), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, nil, things("h", ignore))
				b.store.failBefore(o, times(1, unavailable()))
				err := b.Start(t.Context())
				if !errors.Is(err, relaybus.ErrUnavailable) || !strings.HasPrefix(err.Error(), "start: ") {
					t.Errorf("Start: %v", err)
				}
				if err := b.Start(t.Context()); !errors.Is(err, relaybus.ErrStopped) {
					t.Errorf("Start again: %v", err)
				}
				if err := b.Publish(t.Context(), raw("e-1")); !errors.Is(err, relaybus.ErrStopped) {
					t.Errorf("Publish: %v", err)
				}
			})
		})
	}
}

// F06: a stop during the start ends it.
func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		b.store.failBefore(opSetup, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		started := make(chan error)
		go func() { started <- b.Start(t.Context()) }()
		synctest.Wait()
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if err := <-started; !errors.Is(err, relaybus.ErrStopped) {
			t.Errorf("Start: %v", err)
		}
	})
}

func TestStopGivesUpWaitingForStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		release := make(chan struct{})
		b.store.failBefore(opSetup, func(context.Context) error { <-release; return nil })
		started := make(chan error)
		go func() { started <- b.Start(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop: %v", err)
		}
		close(release)
		if err := <-started; !errors.Is(err, relaybus.ErrStopped) {
			t.Errorf("Start: %v", err)
		}
	})
}

// B16: Run is start, wait, stop.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed))
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- b.Run(ctx) }()
		synctest.Wait()
		b.publish(raw("e-1"))
		c := d.next()
		cancel() // with grace for what runs
		pass(5 * time.Second)
		if c.ctx.Err() != nil {
			t.Error("the handler was cancelled with Run's context")
		}
		c.reply <- nil
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := b.Run(t.Context()); !errors.Is(err, relaybus.ErrStopped) {
			t.Errorf("Run again: %v", err)
		}
		other := newBed(t, nil)
		go func() { ran <- other.Run(t.Context()) }()
		synctest.Wait()
		if err := other.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if err := <-ran; err != nil {
			t.Errorf("Run that somebody else stopped: %v", err)
		}
	})
}

// B16: RunOnce is one batch; Drain takes the follow-ups along, and says why it
// stopped.
func TestRunOnceAndDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bed
		b = newBed(t, nil, things("h", func(ctx context.Context, e *relaybus.RawEvent) error {
			if len(e.ID) > 20 {
				return nil
			}
			return b.Transaction(ctx, func(ctx context.Context) error { return b.Publish(ctx, raw(e.ID+"x")) })
		}))
		b.publish(many(25)...)
		if n, err := b.RunOnce(t.Context()); n != 10 || err != nil {
			t.Errorf("RunOnce: %d, %v", n, err)
		}
		if n := b.drain(); n != 25*15-10 {
			t.Errorf("Drain ran %d, want %d", n, 25*15-10)
		}
		if n := b.drain(); n != 0 {
			t.Errorf("Drain again ran %d", n)
		}
		b.publish(raw("later", relaybus.Delay(time.Hour)))
		if n := b.drain(); n != 0 {
			t.Errorf("Drain ran %d that are not due", n)
		}
		b.store.failBefore(opClaim, times(1, unavailable()))
		if _, err := b.Drain(t.Context()); !errors.Is(err, relaybus.ErrUnavailable) || !strings.Contains(err.Error(), "drain stopped after 0 deliveries") {
			t.Errorf("Drain: %v", err)
		}
	})
}

// The end of the context of RunOnce or Drain cancels handlers, charges nothing,
// and gives everything back.
func TestRunOnceIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, ignores := range []bool{false, true} {
		t.Run(fmt.Sprint("ignores ", ignores), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(memstore.Config{})
				d := newDesk(t)
				handle := d.heed
				if ignores {
					handle = d.handle
				}
				b := newBedOn(t, s, nil, things("h", handle, relaybus.Concurrency(2)))
				b.publish(many(5)...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				_, err := b.Drain(ctx)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Drain: %v", err)
				}
				if took := time.Since(began); took > 2100*time.Millisecond {
					t.Errorf("Drain took %v", took)
				}
				other := newBedOn(t, s.Instance(), nil, things("h", ignore))
				for _, d := range other.list(relaybus.Filter{}) {
					if d.Attempts != 0 || d.Status != relaybus.StatusPending {
						t.Errorf("delivery is %+v", d)
					}
				}
				if n := other.drain(); n != 5 {
					t.Errorf("%d are left for others", n)
				}
				for len(d.calls) > 0 {
					if c := <-d.calls; ignores {
						c.reply <- nil
					}
				}
			})
		})
	}
}

// A drain leaves no lanes behind that others would have to wait for.
func TestDrainGivesLanesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		a, b := newBedOn(t, s.Instance(), nil, things("h", ignore)), newBedOn(t, s.Instance(), nil, things("h", ignore))
		for i := range 10 {
			a.publish(raw(fmt.Sprint("e-", i)))
			if n := []*bed{a, b}[i%2].drain(); n != 1 {
				t.Errorf("drain %d ran %d", i, n)
			}
		}
	})
}

// Drain beside a started dispatcher waits for what that has taken.
func TestDrainBesideDispatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bed
		b = newBed(t, nil, things("h", func(ctx context.Context, e *relaybus.RawEvent) error {
			pass(time.Second)
			if len(e.ID) < 12 {
				return b.Transaction(ctx, func(ctx context.Context) error { return b.Publish(ctx, raw(e.ID+"x")) })
			}
			return nil
		})).start()
		for range 5 {
			b.publish(raw(fmt.Sprintf("e-%d", time.Now().Unix()%1e6)))
			b.drain()
			if s := b.stats(); s.Pending+s.Running != 0 {
				t.Errorf("left: %+v", s)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		b.publish(raw("e-last"))
		if _, err := b.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain: %v", err)
		}
	})
}

// RunOnce during a stop ends with it.
func TestStopDuringRunOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) { c.ShutdownTimeout = time.Second; c.PublishOnly = true }, things("h", func(ctx context.Context, _ *relaybus.RawEvent) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.publish(many(30)...)
		drained := make(chan error)
		go func() {
			_, err := b.Drain(t.Context())
			drained <- err
		}()
		synctest.Wait()
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if err := <-drained; !errors.Is(err, relaybus.ErrStopped) {
			t.Errorf("Drain: %v", err)
		}
	})
}

// B14: a process that only publishes claims nothing.
func TestPublishOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) { c.PublishOnly = true }, things("h", ignore)).start()
		b.publish(raw("e-1"))
		pass(time.Minute)
		if n := b.store.count(opClaim); n != 0 || b.stats().Pending != 1 {
			t.Errorf("%d claims, %+v", n, b.stats())
		}
	})
}

func TestSkipSetup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		newBed(t, nil).start()
		b := newBed(t, func(c *relaybus.Config) { c.SkipSetup = true }).start()
		if n := b.store.count(opSetup); n != 0 {
			t.Errorf("%d setups", n)
		}
	})
}

// Ready says what fails, and that it is over.
func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore)).start()
		b.store.failBefore(opClaim, times(3, unavailable()))
		b.publish(raw("e-1"))
		synctest.Wait()
		if err := b.Ready(); !errors.Is(err, relaybus.ErrUnavailable) {
			t.Errorf("Ready: %v", err)
		}
		pass(5 * time.Second)
		if err := b.Ready(); err != nil {
			t.Errorf("Ready: %v", err)
		}
	})
}
