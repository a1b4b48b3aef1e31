package relaybustest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/relaybustest"
	"github.com/relaybus-go/relaybus/store/memstore"
)

type order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

var (
	orderPlaced   = relaybus.Define[order]("order.placed.v1")
	orderInvoiced = relaybus.Define[order]("order.invoiced.v1")
)

// place publishes orders, each in a transaction of its own.
func place(t *testing.T, b *relaybustest.Bus, ids ...string) {
	t.Helper()
	for _, id := range ids {
		publish(t, b, orderPlaced.New(order{ID: id}, relaybus.Key(id)))
	}
}

func publish(t *testing.T, b *relaybustest.Bus, messages ...relaybus.Message) {
	t.Helper()
	err := b.Transaction(t.Context(), func(ctx context.Context) error { return b.Publish(ctx, messages...) })
	if err != nil {
		t.Fatal(err)
	}
}

// ok handles orders with success.
func ok(id string, options ...relaybus.HandlerOption) relaybus.Handler {
	return orderPlaced.Handle(id, func(context.Context, *relaybus.Event[order]) error { return nil }, options...)
}

// failing handles orders with an error.
func failing(id string, err error, options ...relaybus.HandlerOption) relaybus.Handler {
	return orderPlaced.Handle(id, func(context.Context, *relaybus.Event[order]) error { return err }, options...)
}

func TestDrainRunsWhatIsDueAndWhatFollows(t *testing.T) {
	t.Parallel()
	var b *relaybustest.Bus
	b = relaybustest.New(t, relaybus.Config{},
		orderPlaced.Handle("invoice", func(ctx context.Context, e *relaybus.Event[order]) error {
			return b.Transaction(ctx, func(ctx context.Context) error {
				return b.Publish(ctx, orderInvoiced.New(e.Payload))
			})
		}),
		orderInvoiced.Handle("mail", func(context.Context, *relaybus.Event[order]) error { return nil }),
	)
	place(t, b, "o-1", "o-2")
	b.AssertHandled(t, "invoice", 0)
	if n := b.Drain(t.Context()); n != 4 {
		t.Errorf("Drain ran %d deliveries, want 4", n)
	}
	b.AssertPublished(t, orderPlaced, 2)
	b.AssertPublished(t, relaybustest.TypeName("order.invoiced.v1"), 2)
	b.AssertHandled(t, "invoice", 2)
	b.AssertHandled(t, "mail", 2)
	b.AssertNoDead(t)
	b.AssertDrained(t)
	invoiced := relaybustest.Events(b, orderInvoiced)
	if len(invoiced) != 2 || invoiced[0].CausationID == invoiced[1].CausationID ||
		!slices.Contains([]string{"event-1", "event-2"}, invoiced[0].CorrelationID) {
		t.Errorf("invoiced %+v", invoiced)
	}
}

func TestHandledIsCompleteAfterDrain(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{false, true} {
		b := relaybustest.New(t, relaybus.Config{}, ok("plain"), ok("transactional", relaybus.Transactional()))
		if started {
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50 {
			place(t, b, fmt.Sprintf("o-%d", i))
			b.Drain(t.Context())
			b.AssertHandled(t, "plain", i+1)
			b.AssertHandled(t, "transactional", i+1)
		}
	}
}

// slowHook is told of successes only once it is released.
type slowHook chan struct{}

func (h slowHook) OnSucceeded(relaybus.Attempt) { <-h }

func TestDrainWaitsForHooks(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{false, true} {
		for _, h := range []relaybus.Handler{ok("plain"), ok("transactional", relaybus.Transactional())} {
			synctest.Test(t, func(t *testing.T) {
				hook := make(slowHook)
				b := relaybustest.New(t, relaybus.Config{Hooks: []relaybus.Hook{hook}}, h)
				if started {
					if err := b.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				place(t, b, "o-1")
				drained := make(chan struct{})
				go func() {
					defer close(drained)
					b.Drain(t.Context())
				}()
				synctest.Wait()
				select {
				case <-drained:
					t.Errorf("%s, started %v: Drain did not wait for the hook", h.ID(), started)
				default:
				}
				close(hook)
				<-drained
				b.AssertHandled(t, h.ID(), 1)
			})
		}
	}
}

func TestEverythingIsRepeatable(t *testing.T) {
	t.Parallel()
	run := func() (lines []string) {
		var mu sync.Mutex
		b := relaybustest.New(t, relaybus.Config{},
			orderPlaced.Handle("h", func(_ context.Context, e *relaybus.Event[order]) error {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, e.ID+" "+e.CreatedAt.Format(time.RFC3339))
				return errors.New("again")
			}, relaybus.Retry(relaybus.RetryPolicy{MaxAttempts: 3, Base: time.Second})))
		place(t, b, "o-1")
		b.Drain(t.Context())
		for _, d := range b.Pending() {
			lines = append(lines, "due "+d.DueAt.Format(time.RFC3339Nano))
		}
		return lines
	}
	want := []string{"event-1 2000-01-01T00:00:00Z", "due 2000-01-01T00:00:00.5Z"}
	for range 2 {
		if got := run(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestConfigIsKept(t *testing.T) {
	t.Parallel()
	clock := relaybustest.NewClock(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC))
	b := relaybustest.New(t, relaybus.Config{
		Clock:      clock,
		GenerateID: func() string { return "mine" },
		Random:     func() float64 { return 0.25 },
		Owner:      "me",
	}, failing("h", errors.New("again"), relaybus.Retry(relaybus.RetryPolicy{Base: time.Second})))
	if b.Clock != clock {
		t.Error("Clock is not the one of the configuration")
	}
	place(t, b, "o-1")
	b.Drain(t.Context())
	pending := b.Pending()
	if len(pending) != 1 || pending[0].ID.EventID != "mine" ||
		!pending[0].DueAt.Equal(clock.Now().Add(250*time.Millisecond)) {
		t.Errorf("pending %+v", pending)
	}
}

func TestPublishedIsInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{}, ok("h"))
	slow := b.Store.Begin()
	if err := b.PublishTx(t.Context(), slow, orderPlaced.New(order{ID: "first published"}, relaybus.ID("late"))); err != nil {
		t.Fatal(err)
	}
	place(t, b, "o-1")
	failed := errors.New("rolled back")
	err := b.Transaction(t.Context(), func(ctx context.Context) error {
		return errors.Join(b.Publish(ctx, orderPlaced.New(order{})), failed)
	})
	if !errors.Is(err, failed) {
		t.Fatalf("error %v", err)
	}
	b.AssertPublished(t, orderPlaced, 1)
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range b.Published() {
		ids = append(ids, e.ID)
	}
	if want := []string{"event-1", "late"}; !slices.Equal(ids, want) {
		t.Errorf("published %v, want %v", ids, want)
	}
}

func TestStagedShowsTheOpenTransaction(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{}, ok("h"))
	err := b.Transaction(t.Context(), func(ctx context.Context) error {
		b.AssertStaged(ctx, t, orderPlaced, 0)
		err := b.Publish(ctx,
			orderPlaced.New(order{ID: "o-1", Cents: 5}, relaybus.Key("k"), relaybus.Header("tenant", "acme")),
			orderInvoiced.New(order{}))
		b.AssertStaged(ctx, t, orderPlaced, 1)
		b.AssertPublished(t, orderPlaced, 0)
		staged := relaybustest.StagedEvents(ctx, b, orderPlaced)
		if len(staged) != 1 || staged[0].Payload != (order{ID: "o-1", Cents: 5}) || staged[0].Key != "k" ||
			staged[0].Headers.Get("tenant") != "acme" {
			t.Errorf("staged %+v", staged)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.AssertPublished(t, orderPlaced, 1)
}

func TestStagedLooksAtTheBussOwnStore(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{})
	other := relaybustest.New(t, relaybus.Config{})
	err := b.Transaction(t.Context(), func(ctx context.Context) error {
		return other.Transaction(ctx, func(ctx context.Context) error {
			if err := b.Publish(ctx, orderPlaced.New(order{})); err != nil {
				return err
			}
			b.AssertStaged(ctx, t, orderPlaced, 1)
			other.AssertStaged(ctx, t, orderPlaced, 0)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAdvanceRunsRetriesAtTheirTimes(t *testing.T) {
	t.Parallel()
	var b *relaybustest.Bus
	var start time.Time
	var mu sync.Mutex
	var at []time.Duration
	b = relaybustest.New(t, relaybus.Config{},
		orderPlaced.Handle("h", func(context.Context, *relaybus.Event[order]) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, b.Clock.Now().Sub(start))
			return errors.New("again")
		}, relaybus.Retry(relaybus.RetryPolicy{MaxAttempts: 4, Base: time.Second, NoJitter: true})))
	start = b.Clock.Now()
	place(t, b, "o-1")
	if n := b.Advance(3 * time.Second); n != 3 {
		t.Errorf("%d deliveries ran, want 3", n)
	}
	b.AssertDrained(t)
	b.AssertDead(t, "h", 0)
	if passed := b.Clock.Now().Sub(start); passed != 3*time.Second {
		t.Errorf("%v passed", passed)
	}
	b.Advance(time.Hour)
	b.AssertDead(t, "h", 1)
	if want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}; !slices.Equal(at, want) {
		t.Errorf("attempts at %v, want %v", at, want)
	}
	if dead := b.Dead(); len(dead) != 1 || dead[0].Error != "again" || dead[0].Attempts != 4 {
		t.Errorf("dead %+v", dead)
	}
}

func TestAdvanceRunsDelayedEventsAtTheirTimes(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{}, ok("h"))
	publish(t, b, orderPlaced.New(order{ID: "later"}, relaybus.Delay(time.Minute)))
	b.Drain(t.Context())
	b.AssertHandled(t, "h", 0)
	b.Advance(time.Minute - time.Millisecond)
	b.AssertHandled(t, "h", 0)
	b.Advance(time.Millisecond)
	b.AssertHandled(t, "h", 1)
}

func TestAdvanceProbesAnOutageAtTheRightTimes(t *testing.T) {
	t.Parallel()
	a := &attempts{}
	b := relaybustest.New(t, relaybus.Config{},
		orderPlaced.Handle("h", func(ctx context.Context, e *relaybus.Event[order]) error {
			if err := a.handle(ctx, e); err != nil {
				return relaybus.Unavailable(err)
			}
			return nil
		}, relaybus.Concurrency(1)))
	a.clock, a.start, a.fail = b.Clock, b.Clock.Now(), 3
	place(t, b, "o-1")
	b.Drain(t.Context())
	b.Drain(t.Context()) // does nothing, and is no failure
	a.want(t, 0)
	f := newFakeTB(t)
	b.AssertDrained(f)
	f.failure(t)
	b.Advance(time.Minute)
	a.want(t, 0, time.Second, 3*time.Second, 7*time.Second)
	b.AssertHandled(t, "h", 1)
	b.AssertDrained(t)
}

func TestAdvanceKeepsToARate(t *testing.T) {
	t.Parallel()
	a := &attempts{}
	b := relaybustest.New(t, relaybus.Config{},
		orderPlaced.Handle("h", a.handle, relaybus.Rate(3, time.Second), relaybus.Concurrency(1)))
	a.clock, a.start = b.Clock, b.Clock.Now()
	place(t, b, "o-1", "o-2", "o-3", "o-4", "o-5")
	b.Drain(t.Context())
	b.AssertHandled(t, "h", 3)
	b.Advance(400 * time.Millisecond)
	b.AssertHandled(t, "h", 4)
	b.Advance(time.Second)
	a.want(t, 0, 0, 0, 334*time.Millisecond, 667*time.Millisecond)
	b.AssertDrained(t)
}

func TestHandlerTimeoutByTheClock(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	b := relaybustest.New(t, relaybus.Config{},
		orderPlaced.Handle("h", func(ctx context.Context, _ *relaybus.Event[order]) error {
			close(started)
			<-ctx.Done()
			return context.Cause(ctx)
		}, relaybus.Timeout(time.Minute), relaybus.Retry(relaybus.RetryPolicy{MaxAttempts: 1})))
	place(t, b, "o-1")
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		b.Drain(t.Context())
	}()
	<-started
	b.Clock.Advance(time.Minute)
	<-drained
	b.AssertDead(t, "h", 1)
	if dead := b.Dead(); len(dead) != 1 || !strings.HasPrefix(dead[0].Error, relaybus.ErrHandlerTimeout.Error()) {
		t.Errorf("dead %+v", dead)
	}
}

func TestTransactionalHandler(t *testing.T) {
	t.Parallel()
	committed := 0
	b := relaybustest.New(t, relaybus.Config{},
		orderPlaced.Handle("h", func(ctx context.Context, e *relaybus.Event[order]) error {
			memstore.Tx(ctx).OnCommit(func() { committed++ })
			if e.Attempt == 1 {
				return errors.New("again")
			}
			return nil
		}, relaybus.Transactional()))
	place(t, b, "o-1")
	b.Drain(t.Context())
	if committed != 0 {
		t.Error("a failed attempt had an effect")
	}
	b.Advance(time.Second)
	if committed != 1 {
		t.Errorf("%d effects, want 1", committed)
	}
	b.AssertHandled(t, "h", 1)
}

func TestStartedBus(t *testing.T) {
	t.Parallel()
	handled := make(chan string)
	b := relaybustest.New(t, relaybus.Config{},
		orderPlaced.Handle("h", func(_ context.Context, e *relaybus.Event[order]) error {
			handled <- e.Payload.ID
			return nil
		}))
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	place(t, b, "o-1")
	if id := <-handled; id != "o-1" {
		t.Errorf("handled %s", id)
	}
	b.Drain(t.Context())
	b.AssertHandled(t, "h", 1)
	b.AssertDrained(t)
}

func TestPeerSharesDataClockAndIDs(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{}, ok("one"))
	peer := b.Peer(t, relaybus.Config{}, ok("two"))
	if peer.Clock != b.Clock {
		t.Error("the clocks differ")
	}
	b.Drain(t.Context()) // records its handler, as does the next line
	peer.Drain(t.Context())
	b.Advance(time.Second)
	place(t, b, "o-1")
	place(t, peer, "o-2")
	b.AssertPublished(t, orderPlaced, 2)
	b.Drain(t.Context())
	b.AssertHandled(t, "one", 2)
	b.AssertHandled(t, "two", 0)
	peer.Drain(t.Context())
	peer.AssertHandled(t, "two", 2)
}
