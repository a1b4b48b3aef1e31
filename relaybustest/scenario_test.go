package relaybustest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/relaybustest"
)

// journal notes what a handler got, and lets order a fail.
type journal struct {
	mu    sync.Mutex
	lines []string
	fail  error
}

func (j *journal) handle(_ context.Context, e *relaybus.Event[order]) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%s#%d", e.Payload.ID, e.Attempt))
	if e.Payload.ID == "a" {
		return j.fail
	}
	return nil
}

func (j *journal) failA(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail = err
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, want) {
		t.Errorf("got  %v\nwant %v", j.lines, want)
	}
}

func keyed(ids ...string) []relaybus.Message {
	var messages []relaybus.Message
	for _, id := range ids {
		messages = append(messages, orderPlaced.New(order{ID: id}, relaybus.Key("k")))
	}
	return messages
}

func TestKeyedEventsWaitForTheRetryOfTheFirst(t *testing.T) {
	t.Parallel()
	var j journal
	j.failA(errors.New("again"))
	b := relaybustest.New(t, relaybus.Config{}, orderPlaced.Handle("h", j.handle, retryEverySecond()))
	publish(t, b, keyed("a", "b", "c")...)
	b.Advance(time.Second)
	j.want(t, "a#1", "a#2")
	b.AssertDrained(t) // the others wait for what is due later
	j.failA(nil)
	b.Advance(time.Second)
	j.want(t, "a#1", "a#2", "a#3", "b#1", "c#1")
	b.AssertHandled(t, "h", 3)
}

func TestHeldKeyUntilSkipOrRequeue(t *testing.T) {
	t.Parallel()
	for _, requeue := range []bool{false, true} {
		var j journal
		j.failA(relaybus.Permanent(errors.New("broken")))
		b := relaybustest.New(t, relaybus.Config{}, orderPlaced.Handle("h", j.handle, relaybus.HoldKey()))
		publish(t, b, keyed("a", "b", "c")...)
		b.Advance(time.Hour)
		j.want(t, "a#1")
		b.AssertDead(t, "h", 1)
		j.failA(nil)
		id := b.Dead()[0].ID
		if requeue {
			if err := b.Requeue(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			b.Drain(t.Context())
			j.want(t, "a#1", "a#1", "b#1", "c#1")
			b.AssertNoDead(t)
		} else {
			if err := b.Skip(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			b.Drain(t.Context())
			j.want(t, "a#1", "b#1", "c#1")
			b.AssertDead(t, "h", 1)
		}
		b.AssertDrained(t)
	}
}

func TestPausedHandler(t *testing.T) {
	t.Parallel()
	var j journal
	b := relaybustest.New(t, relaybus.Config{}, orderPlaced.Handle("h", j.handle))
	b.Drain(t.Context()) // records the handler
	if err := b.Pause(t.Context(), "h"); err != nil {
		t.Fatal(err)
	}
	place(t, b, "a")
	b.Advance(time.Hour)
	j.want(t)
	f := newFakeTB(t)
	b.AssertDrained(f)
	f.failure(t)
	if err := b.Resume(t.Context(), "h"); err != nil {
		t.Fatal(err)
	}
	b.Drain(t.Context())
	j.want(t, "a#1")
}

func TestRetentionByTheClock(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{}, ok("h"))
	place(t, b, "a")
	b.Drain(t.Context())
	for _, step := range []struct {
		wait time.Duration
		left int
	}{{7*24*time.Hour - time.Minute, 1}, {2 * time.Minute, 0}} {
		b.Advance(step.wait)
		if _, err := b.PurgeExpired(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.AssertPublished(t, orderPlaced, step.left)
	}
}

func TestPeerTakesOverAnExpiredLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var j journal
		// The first worker stalls: its own clock stands still, so it renews nothing.
		stalled := relaybustest.New(t, relaybus.Config{CancelGrace: time.Hour},
			orderPlaced.Handle("h", func(context.Context, *relaybus.Event[order]) error {
				<-release
				return nil
			}))
		place(t, stalled, "a")
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			stalled.Drain(t.Context())
		}()
		synctest.Wait()
		peer := stalled.Peer(t, relaybus.Config{Clock: relaybustest.NewClock(time.Time{})}, orderPlaced.Handle("h", j.handle))
		peer.Advance(29 * time.Second)
		j.want(t)
		peer.Advance(2 * time.Second)
		j.want(t, "a#2")
		close(release)
		<-drained
		stalled.AssertHandled(t, "h", 0) // its lease was lost
		peer.AssertHandled(t, "h", 1)
	})
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{false, true} {
		// The others may turn the clock further than default budgets and leases last while one is at work.
		config := relaybus.Config{TransactionTimeout: time.Hour, LeaseDuration: 2 * time.Hour}
		b := relaybustest.New(t, config, ok("h"), ok("tx", relaybus.Transactional(), relaybus.Timeout(time.Hour)))
		if started {
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for i := range 10 {
					err := b.Transaction(t.Context(), func(ctx context.Context) error {
						return b.Publish(ctx, orderPlaced.New(order{Cents: i}, relaybus.Key("k"), relaybus.Delay(time.Duration(i)*time.Second)))
					})
					if err != nil {
						t.Error(err)
					}
					b.Drain(t.Context())
					b.Advance(time.Second)
					b.Published()
					b.Handled("h")
					b.Pending()
				}
			})
		}
		group.Wait()
		b.Advance(time.Minute)
		b.AssertPublished(t, orderPlaced, 40)
		b.AssertHandled(t, "h", 40)
		b.AssertHandled(t, "tx", 40)
		b.AssertNoDead(t)
		b.AssertDrained(t)
	}
}
