package relaybus_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func many(n int, options ...relaybus.PublishOption) []relaybus.Message {
	messages := make([]relaybus.Message, n)
	for i := range messages {
		messages[i] = raw(fmt.Sprintf("e-%05d", i), options...)
	}
	return messages
}

// B14: a publish in this process is handled at once, with no timer between the
// commit and the claim.
func TestWakeIsImmediate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, func(c *relaybus.Config) { c.PollInterval = time.Hour; c.CatalogInterval = time.Hour }, things("h", d.heed))
		deaf(b)
		b.start()
		synctest.Wait()
		for i := range 20 {
			began := time.Now()
			b.publish(raw(fmt.Sprint("e-", i)))
			c := d.next()
			if took := time.Since(began); took != 0 {
				t.Errorf("it took %v", took)
			}
			c.reply <- nil
		}
	})
}

// B14: by the store's signal when another process has published, and by the
// poll without one.
func TestWakeFromAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, isDeaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", isDeaf), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(memstore.Config{})
				d := newDesk(t)
				b := newBedOn(t, s, nil, things("h", d.heed))
				if isDeaf {
					deaf(b)
				}
				b.start()
				other := newBedOn(t, s.Instance(), func(c *relaybus.Config) { c.PublishOnly = true }).start()
				pass(2300 * time.Millisecond)
				began := time.Now()
				other.publish(raw("e-1"))
				d.next().reply <- nil
				want := time.Duration(0)
				if isDeaf {
					want = 700 * time.Millisecond
				}
				if took := time.Since(began); took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
			})
		})
	}
}

// A wake-up that comes while a claim is under way is not lost.
func TestWakeDuringClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, func(c *relaybus.Config) { c.PollInterval = time.Hour; c.CatalogInterval = time.Hour }, things("h", d.heed))
		deaf(b)
		release := make(chan struct{})
		b.store.failAfter(opClaim, func(context.Context) error { <-release; return nil })
		b.start()
		synctest.Wait() // the first claim has found nothing, and has not returned
		b.publish(raw("e-1"))
		synctest.Wait()
		began := time.Now()
		close(release)
		d.next().reply <- nil
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// An idle bus claims once a poll interval, and writes nothing.
func TestIdleClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore), things("g", ignore)).start()
		b.publish(raw("e-1"))
		pass(10500 * time.Millisecond)
		b.store.reset()
		pass(100 * time.Second)
		synctest.Wait()
		if n := b.store.count(opClaim); n != 100 {
			t.Errorf("%d claims in 100 s, want 100", n)
		}
		if n := b.store.count(opSettle) + b.store.count(opExtend) + b.store.count(opTransact); n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

// A busy bus claims full batches, ahead of what it runs, and completes in
// batches.
func TestBusyClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		var ran atomic.Int64
		done := make(chan struct{})
		b := newBed(t, func(c *relaybus.Config) {
			c.Concurrency, c.Hooks = 100, nil
		}, things("h", func(context.Context, *relaybus.RawEvent) error {
			if ran.Add(1) == n {
				close(done)
			}
			return nil
		}))
		messages := many(n)
		for len(messages) > 0 {
			b.publish(messages[:1000]...)
			messages = messages[1000:]
		}
		b.store.reset()
		b.start()
		<-done
		synctest.Wait()
		pass(10 * time.Millisecond)
		if c := b.store.count(opClaim); c > n/100*12/10 {
			t.Errorf("%d claims for %d deliveries, 100 at once", c, n)
		}
		if c := b.store.count(opSettle); c > n/100*12/10 {
			t.Errorf("%d calls to complete %d deliveries", c, n)
		}
		if s := b.stats(); s.Pending+s.Running != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// What finishes close together is completed in one call.
func TestCompletionBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed)).start()
		b.publish(many(10)...)
		calls := make([]*call, 10)
		for i := range calls {
			calls[i] = d.next()
		}
		b.store.reset()
		for _, c := range calls {
			c.reply <- nil
		}
		pass(10 * time.Millisecond)
		if n := b.store.count(opSettle); n != 1 {
			t.Errorf("%d calls to complete 10 deliveries, want 1", n)
		}
	})
}

// Z11: nobody waits for the followers of a key.
func TestCompletionWithFollowersIsFlushed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, func(c *relaybus.Config) { c.CompletionLinger = time.Second },
			things("h", d.heed)).start()
		b.publish(raw("e-1", relaybus.Key("k")), raw("e-2", relaybus.Key("k")), raw("slow"))
		began := time.Now()
		for {
			c := d.next()
			if c.event.ID == "e-1" {
				c.reply <- nil
			}
			if c.event.ID == "e-2" {
				break
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the follower waited %v", took)
		}
	})
}

// B22: a hung handler takes no more than its limit, and leaves a slot for each
// quiet one; what it claimed ahead does not keep the others from claiming.
func TestHungHandlersLeaveSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var handlers []relaybus.Handler
		hang := make(chan struct{})
		var hung atomic.Bool
		for i := range 4 {
			handlers = append(handlers, things(fmt.Sprint("hung-", i), func(context.Context, *relaybus.RawEvent) error {
				if hung.Load() {
					<-hang
				}
				return nil
			}, relaybus.Concurrency(1)))
		}
		d := newDesk(t)
		handlers = append(handlers, relaybus.Handle("quiet", []string{"quiet"}, d.heed))
		b := newBed(t, nil, handlers...).start()
		b.publish(many(500)...)
		synctest.Wait()
		hung.Store(true)
		for i := range 500 {
			b.publish(raw(fmt.Sprint("f-", i)))
		}
		for i := range 10 {
			began := time.Now()
			b.publish(relaybus.Raw("quiet", []byte(`1`)))
			c := d.next()
			if took := time.Since(began); took != 0 {
				t.Errorf("quiet %d waited %v", i, took)
			}
			c.reply <- nil
		}
		close(hang)
	})
}

// What was claimed ahead for a handler that hangs goes back, so that another
// process can run it.
func TestClaimedAheadIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		hang := make(chan struct{})
		var n atomic.Int64
		b := newBedOn(t, s, func(c *relaybus.Config) { c.Concurrency = 10 }, things("h", func(context.Context, *relaybus.RawEvent) error {
			if n.Add(1) > 50 {
				<-hang
			}
			return nil
		})).start()
		b.publish(many(100)...)
		synctest.Wait()
		if r := b.stats().Running; r <= 10 {
			t.Fatalf("%d are claimed, want some ahead", r)
		}
		pass(25 * time.Second)
		synctest.Wait()
		if r := b.stats().Running; r != 10 {
			t.Errorf("%d are claimed, want those that run", r)
		}
		close(hang)
	})
}

// F16: renewals keep a long handler's lease; it runs once.
func TestLongHandlerIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		d := newDesk(t)
		b := newBedOn(t, s, nil, things("h", d.heed)).start()
		newBedOn(t, s.Instance(), nil, things("h", d.heed)).start()
		b.publish(raw("e-1"))
		c := d.next()
		pass(10 * time.Minute)
		if c.ctx.Err() != nil {
			t.Error("its context ended")
		}
		d.idle()
		c.reply <- nil
		pass(time.Minute)
		d.idle()
	})
}

// F16: when renewals fail, or hang, the context ends before the lease does, and
// what comes late changes nothing.
func TestRenewalFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return unavailable() },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return unavailable() },
	} {
		for _, ignores := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s ignored %v", name, ignores), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := memstore.New(memstore.Config{})
					d, other := newDesk(t), newDesk(t)
					handle := d.heed
					if ignores {
						handle = d.handle
					}
					b := newBedOn(t, s, nil, things("h", handle)).start()
					second := newBedOn(t, s.Instance(), nil, things("h", other.heed)).start()
					pause := func() {
						for _, o := range []op{opClaim, opExtend, opSettle} {
							b.store.failBefore(o, fault)
						}
					}
					if err := second.Pause(t.Context(), "h"); err != nil {
						t.Fatal(err)
					}
					second.publish(raw("e-1"))
					b.store.failBefore(opClaim, nil)
					if err := second.Resume(t.Context(), "h"); err != nil {
						t.Fatal(err)
					}
					var c *call
					select {
					case c = <-d.calls:
						pause()
					case c = <-other.calls: // the other one was first; then it is the one that fails
						other, b, second = d, second, b
						if ignores {
							c.reply <- nil
							return
						}
						pause()
					}
					began := time.Now()
					<-c.ctx.Done()
					if took := time.Since(began); took >= 30*time.Second || took < 20*time.Second || !errors.Is(context.Cause(c.ctx), relaybus.ErrLeaseLost) && !errors.Is(context.Cause(c.ctx), relaybus.ErrHandlerTimeout) {
						t.Errorf("context ended after %v: %v", took, context.Cause(c.ctx))
					}
					again := other.next()
					if took := time.Since(began); took < 30*time.Second || took > 32*time.Second || again.event.Attempt != 2 {
						t.Errorf("taken over after %v, attempt %d", took, again.event.Attempt)
					}
					if ignores {
						c.reply <- nil // too late
					}
					for _, o := range []op{opClaim, opExtend, opSettle} {
						b.store.failBefore(o, nil)
					}
					pass(5 * time.Second)
					if s := second.stats(); s.Running != 1 {
						t.Errorf("the late result counted: %+v", s)
					}
					again.reply <- nil
				})
			})
		}
	}
}

// Z12: a handler that ignores its cancelled context keeps its slot and its key,
// and its delivery goes back with its attempt.
func TestHandlerIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		d, other := newDesk(t), newDesk(t)
		b := newBedOn(t, s, nil, things("h", d.handle, relaybus.Timeout(5*time.Second))).start()
		b.publish(raw("e-1", relaybus.Key("k")), raw("e-2", relaybus.Key("k")))
		c := d.next()
		pass(5*time.Second + time.Millisecond)
		if !errors.Is(context.Cause(c.ctx), relaybus.ErrHandlerTimeout) {
			t.Errorf("cause is %v", context.Cause(c.ctx))
		}
		pass(time.Second)
		synctest.Wait()
		if d := b.only(relaybus.Filter{EventID: "e-1"}); d.Attempts != 1 || d.Status != relaybus.StatusPending {
			t.Errorf("delivery is %+v", d)
		}
		pass(30 * time.Second)
		d.idle() // it never runs beside its own retry in one process
		newBedOn(t, s.Instance(), nil, things("h", other.heed)).start()
		again := other.next() // another process may
		if again.event.ID != "e-1" || again.event.Attempt != 2 {
			t.Errorf("the other process runs %s, attempt %d", again.event.ID, again.event.Attempt)
		}
		again.reply <- nil
		other.next().reply <- nil
		c.reply <- nil
		synctest.Wait()
		b.publish(raw("e-3", relaybus.Key("k")))
		synctest.Wait()
		select {
		case c := <-d.calls: // the slot and the key are free again
			c.reply <- nil
		case c := <-other.calls:
			c.reply <- nil
		default:
			t.Error("nobody runs e-3")
		}
	})
}

// A hung delivery is buried on its last attempt, and its handler's return
// changes nothing then.
func TestHungUntilDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, func(c *relaybus.Config) { c.Retry.MaxAttempts = 1; c.Concurrency = 1 }, things("h", d.handle, relaybus.Timeout(time.Second))).start()
		b.publish(raw("e-1"), raw("e-2"))
		c := d.next()
		pass(10 * time.Second)
		if dead := b.list(relaybus.Filter{Status: relaybus.StatusDead}); len(dead) != 1 {
			t.Errorf("dead are %+v", dead)
		}
		d.idle() // its slot is taken
		c.reply <- nil
		d.next().reply <- nil
		synctest.Wait()
		if s := b.stats(); s.Dead != 1 || s.Completed != 1 {
			t.Errorf("statistics are %+v", s)
		}
	})
}

// A timeout is an attempt, with its cause in the error.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) { c.HandlerTimeout = 3 * time.Second }, things("h", func(ctx context.Context, _ *relaybus.RawEvent) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		b.publish(raw("e-1"))
		if n, err := b.RunOnce(t.Context()); n != 1 || err != nil {
			t.Fatalf("RunOnce: %d, %v", n, err)
		}
		if d := b.only(relaybus.Filter{}); d.Attempts != 1 || d.Error != "handler timeout: context canceled" {
			t.Errorf("delivery is %+v", d)
		}
		if err := b.seen.lastErr(); !errors.Is(err, relaybus.ErrHandlerTimeout) || !errors.Is(err, context.Canceled) {
			t.Errorf("the hook was told %v", err)
		}
	})
}

// crash makes the bus lose everything at once, as its process would.
func (b *bed) crash() {
	gone := func(ctx context.Context) error { <-ctx.Done(); return unavailable() }
	for _, o := range []op{opClaim, opSettle, opExtend, opRelinquish, opTransact, opHandlers} {
		b.store.failBefore(o, gone)
	}
}

// B11, F22: a worker that dies is charged an attempt, so what kills its worker
// ends dead; Z10: but what may have been a bystander runs once more alone.
func TestPoisonEndsDead(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"poison", "bystander"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(memstore.Config{History: true})
				limit := func(c *relaybus.Config) { c.Retry.MaxAttempts = 3; c.PublishOnly = true }
				watch := newBedOn(t, s.Instance(), limit, things("h", ignore)).start()
				watch.publish(raw(first))
				watch.publish(raw(map[string]string{"poison": "bystander", "bystander": "poison"}[first]))
				alone := 0
				for crashes := range 4 {
					if crashed := runUntilCrash(t, s.Instance(), crashes == 3); crashed && crashes == 3 {
						alone++
					}
				}
				last := newBedOn(t, s.Instance(), func(c *relaybus.Config) { c.Retry.MaxAttempts = 3 }, things("h", ignore)).start()
				pass(2 * time.Minute)
				if err := last.Ready(); err != nil {
					t.Error(err)
				}
				if d := watch.only(relaybus.Filter{EventID: "poison"}); d.Status != relaybus.StatusDead || d.Lost != 4 {
					t.Errorf("poison is %+v", d)
				}
				if d := watch.only(relaybus.Filter{EventID: "bystander"}); d.Status != relaybus.StatusCompleted {
					t.Errorf("bystander is %+v", d)
				}
				if alone != 1 {
					t.Errorf("the poison ran alone %d times, want once", alone)
				}
			})
		})
	}
}

// runUntilCrash runs a process until the poison has killed it. When alone is
// set, each delivery must run alone.
func runUntilCrash(t *testing.T, s *memstore.Store, alone bool) bool {
	t.Helper()
	d := newDesk(t)
	b := newBedOn(t, s, func(c *relaybus.Config) { c.Retry.MaxAttempts = 3; c.ShutdownTimeout = time.Second }, things("h", d.heed))
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		b.crash()
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		_ = b.Stop(ctx)
		b.store.failBefore(opExtend, nil)
		pass(31 * time.Second)
	}()
	for {
		c := d.next()
		synctest.Wait()
		if alone && len(d.calls) > 0 {
			t.Error("two run where each should run alone")
		}
		if len(d.calls) == 0 && c.event.ID == "bystander" {
			c.reply <- nil
			continue
		}
		return true
	}
}

// Z10 must not stop a whole process: who waits to run alone, or runs alone, for
// longer than a lease has no privilege.
func TestAloneIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		var marked atomic.Bool
		b := newBed(t, func(c *relaybus.Config) { c.Retry.MaxAttempts = 1 }, things("h", d.heed))
		b.store.claimed = func(_ store.ClaimRequest, r *store.ClaimResult) {
			for i := range r.Deliveries {
				if c := &r.Deliveries[i]; c.Event.ID == "alone" {
					c.Attempt, c.Lost, c.Alone = 2, 1, marked.Load()
					marked.Store(true)
				}
			}
		}
		b.start()
		b.publish(raw("slow"))
		slow := d.next()
		b.publish(raw("alone"))
		synctest.Wait()
		b.publish(raw("next"))
		began := time.Now()
		d.idle()
		alone := d.next()
		if took := time.Since(began); alone.event.ID != "alone" || took < 30*time.Second || took > 41*time.Second {
			t.Errorf("%s after %v", alone.event.ID, took)
		}
		d.idle()
		next := d.next()
		if took := time.Since(began); next.event.ID != "next" || took > 82*time.Second {
			t.Errorf("%s after %v", next.event.ID, took)
		}
		for _, c := range []*call{slow, alone, next} {
			c.reply <- nil
		}
	})
}

// When the delivery that is to run alone has gone to another process, the
// others go on soon.
func TestAloneIsTakenByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, func(c *relaybus.Config) { c.Retry.MaxAttempts = 1 }, things("h", d.heed))
		marked := 0
		b.store.claimed = func(_ store.ClaimRequest, r *store.ClaimResult) {
			for i := range r.Deliveries {
				if c := &r.Deliveries[i]; c.Event.ID == "e-00000" && marked < 1 {
					marked++
					c.Attempt, c.Lost, c.Alone = 2, 1, true
				}
			}
		}
		b.start()
		b.publish(many(40)...)
		began := time.Now()
		for range 40 {
			d.next().reply <- nil
		}
		if took := time.Since(began); took > time.Second || marked != 1 {
			t.Errorf("it took %v", took)
		}
	})
}

// Store errors of every class, anywhere: once they end, the backlog goes.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for _, class := range []error{
		store.ErrUnavailable, store.ErrConflict, store.ErrTimeout, store.ErrConfiguration, store.ErrNotSetUp,
		store.ErrLeaseLost, store.ErrInvalidArgument, store.ErrInvalidToken, store.ErrClosed,
	} {
		for _, o := range []op{opClaim, opSettle, opExtend} {
			for _, after := range []bool{false, true} {
				if o == opClaim && after {
					continue // what a claim's lost reply leaves behind is the store's to mend
				}
				t.Run(fmt.Sprintf("%s %v after %v", o, class, after), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						var ran atomic.Int64
						b := newBed(t, func(c *relaybus.Config) { c.LeaseDuration = 3 * time.Second }, things("h", func(context.Context, *relaybus.RawEvent) error {
							ran.Add(1)
							pass(2 * time.Second)
							return nil
						}))
						fault := times(3, store.NewError("fault", class, "", nil))
						if after {
							b.store.failAfter(o, times(3, &store.Error{Op: "fault", Class: class, Also: store.ErrOutcomeUnknown}))
						} else {
							b.store.failBefore(o, fault)
						}
						b.start()
						b.publish(many(20)...)
						pass(2 * time.Minute)
						synctest.Wait()
						s := b.stats()
						refused := o == opSettle && (errors.Is(class, store.ErrInvalidArgument) || errors.Is(class, store.ErrInvalidToken) || errors.Is(class, store.ErrLeaseLost))
						if s.Completed != 20 && !refused {
							t.Errorf("statistics are %+v, it ran %d times", s, ran.Load())
						}
						if n := ran.Load(); n < 20 || (n > 20 && o != opExtend) {
							t.Errorf("20 deliveries ran %d times", n)
						}
						if err := b.Ready(); err != nil {
							t.Errorf("Ready: %v", err)
						}
					})
				})
			}
		}
	}
}

// One settlement that the store refuses does not take the others with it.
func TestRefusedSettlement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		bad := ""
		b.store.claimed = func(_ store.ClaimRequest, r *store.ClaimResult) {
			for i := range r.Deliveries {
				if c := &r.Deliveries[i]; c.Event.ID == "e-00003" {
					bad = c.Event.ID
					c.Lease.Token = lane.Token{}
				}
			}
		}
		b.publish(many(10)...)
		b.drain()
		if s := b.stats(); s.Completed != 9 || bad == "" {
			t.Errorf("statistics are %+v", s)
		}
		if n := b.seen.count("lost h e-00003 1"); n == 0 {
			t.Error("nobody was told of the lost one")
		}
	})
}

// A store that answers with fewer results than asked, or hands out what nobody
// asked for, is survived.
func TestStoreAnswersWrongly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := newLogBook()
		b := newBed(t, func(c *relaybus.Config) { c.Logger = log.logger(); c.Concurrency = 2 }, things("h", ignore))
		b.store.settled = func(_ []store.Settlement, ok []bool) []bool { return ok[:0] }
		b.store.claimed = func(_ store.ClaimRequest, r *store.ClaimResult) {
			if len(r.Deliveries) > 0 {
				more := r.Deliveries[0]
				more.Lease.Handler, more.Lease.EventID = "stranger", "none"
				r.Deliveries = append(r.Deliveries, more)
			}
		}
		b.start()
		b.publish(many(20)...)
		pass(time.Minute)
		if s := b.stats(); s.Completed != 20 {
			t.Errorf("statistics are %+v", s)
		}
		if log.count("not asked for") == 0 {
			t.Error("nothing was logged")
		}
	})
}

// F48: many processes, no faults: each delivery runs exactly once.
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const events, processes = 1000, 20
		s := memstore.New(memstore.Config{})
		var ran [events]atomic.Int64
		handle := func(_ context.Context, e *relaybus.RawEvent) error {
			var i int
			if _, err := fmt.Sscanf(e.ID, "e-%d", &i); err != nil {
				return err
			}
			ran[i].Add(1)
			pass(time.Duration(i%7) * time.Millisecond)
			return nil
		}
		var b *bed
		for range processes {
			b = newBedOn(t, s.Instance(), nil, things("h", handle)).start()
		}
		messages := many(events)
		for len(messages) > 0 {
			b.publish(messages[:100]...)
			messages = messages[100:]
			pass(time.Millisecond)
		}
		pass(time.Minute)
		for i := range ran {
			if n := ran[i].Load(); n != 1 {
				t.Errorf("event %d ran %d times", i, n)
			}
		}
	})
}

// B22: a rate is kept, and what it holds back costs no claims.
func TestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Time
		b := newBed(t, nil, things("h", func(context.Context, *relaybus.RawEvent) error {
			starts = append(starts, time.Now())
			return nil
		}, relaybus.Rate(5, 10*time.Second), relaybus.Concurrency(1))).start()
		b.publish(many(30)...)
		b.store.reset()
		began := time.Now()
		pass(time.Minute)
		synctest.Wait()
		if len(starts) != 30 {
			t.Fatalf("%d ran", len(starts))
		}
		for i, at := range starts {
			want := max(time.Duration(i-4)*2*time.Second, 0)
			if took := at.Sub(began); took < want || took > want+5*time.Millisecond {
				t.Errorf("start %d after %v, want %v", i, took, want)
			}
		}
		if n := b.store.count(opClaim); n > 95 {
			t.Errorf("%d claims in a minute", n)
		}
	})
}

// F56: no transaction is open while a handler works that asked for none.
func TestHandlersHoldNoTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed)).start()
		b.publish(raw("e-1"))
		b.store.reset()
		c := d.next()
		pass(30 * time.Second)
		c.reply <- nil
		synctest.Wait()
		if n := b.store.count(opTransact); n != 0 {
			t.Errorf("%d transactions", n)
		}
	})
}
