package relaybustest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/relaybustest"
)

// attempts notes when a handler ran, and fails the first times.
type attempts struct {
	mu    sync.Mutex
	start time.Time
	clock relaybus.Clock
	fail  int
	at    []time.Duration
}

func (a *attempts) handle(context.Context, *relaybus.Event[order]) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, a.clock.Now().Sub(a.start))
	if len(a.at) <= a.fail {
		return errors.New("again")
	}
	return nil
}

func (a *attempts) want(t *testing.T, want ...time.Duration) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.at, want) {
		t.Errorf("attempts at %v, want %v", a.at, want)
	}
}

func retryEverySecond() relaybus.HandlerOption {
	return relaybus.Retry(relaybus.RetryPolicy{Base: time.Second, Cap: time.Second, NoJitter: true})
}

func TestBubbleWithTheFakeClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := relaybustest.NewClock(time.Now())
		a := &attempts{start: clock.Now(), clock: clock, fail: 2}
		b := relaybustest.New(t, relaybus.Config{Clock: clock}, orderPlaced.Handle("h", a.handle, retryEverySecond()))
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		place(t, b, "o-1")
		synctest.Wait() // the started bus does it by itself
		a.want(t, 0)
		b.Clock.Advance(999 * time.Millisecond)
		synctest.Wait()
		a.want(t, 0)
		b.Clock.Advance(time.Millisecond)
		synctest.Wait()
		a.want(t, 0, time.Second)
		b.Advance(time.Minute)
		a.want(t, 0, time.Second, 2*time.Second)
		b.AssertHandled(t, "h", 1)
		b.AssertDrained(t)
	})
}

func TestBubbleWithTheSystemClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &attempts{start: time.Now(), clock: relaybus.SystemClock{}, fail: 2}
		b := relaybustest.New(t, relaybus.Config{Clock: relaybus.SystemClock{}},
			orderPlaced.Handle("h", a.handle, retryEverySecond()))
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		place(t, b, "o-1")
		<-time.After(time.Minute) // of the bubble, so it takes no time
		synctest.Wait()
		a.want(t, 0, time.Second, 2*time.Second)
		b.AssertHandled(t, "h", 1)
		b.AssertDrained(t)
	})
}

func TestBubbleWithDrainOnTheSystemClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := relaybustest.New(t, relaybus.Config{Clock: relaybus.SystemClock{}},
			orderPlaced.Handle("h", func(ctx context.Context, _ *relaybus.Event[order]) error {
				<-ctx.Done() // until its timeout, which the bubble makes pass
				return context.Cause(ctx)
			}, relaybus.Timeout(time.Hour), relaybus.Retry(relaybus.RetryPolicy{MaxAttempts: 1})))
		place(t, b, "o-1")
		if n := b.Drain(t.Context()); n != 1 {
			t.Errorf("%d deliveries ran, want 1", n)
		}
		b.AssertDead(t, "h", 1)
	})
}

func TestBubbleWithTransactionBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := relaybustest.New(t, relaybus.Config{TransactionTimeout: time.Second}, ok("h"))
		err := b.Transaction(t.Context(), func(ctx context.Context) error {
			b.Clock.Advance(time.Second)
			return b.Publish(context.WithoutCancel(ctx), orderPlaced.New(order{}))
		})
		if _, ok := errors.AsType[*relaybus.TransactionTimeoutError](err); !ok {
			t.Errorf("error %v, want a TransactionTimeoutError", err)
		}
		b.AssertPublished(t, orderPlaced, 0)
	})
}
