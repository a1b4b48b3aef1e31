package relaybus_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// orderLog checks that no two of a key run at once, and keeps first executions.
type orderLog struct {
	t       *testing.T
	mu      sync.Mutex
	running map[string]string
	first   map[string][]int64
	seen    map[string]bool
}

func newOrderLog(t *testing.T) *orderLog {
	t.Helper()
	return &orderLog{t: t, running: map[string]string{}, first: map[string][]int64{}, seen: map[string]bool{}}
}

func (l *orderLog) enter(e *relaybus.RawEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.running[e.Key]; other != "" {
		l.t.Errorf("%s runs beside %s of key %s", e.ID, other, e.Key)
	}
	l.running[e.Key] = e.ID
	if !l.seen[e.ID] {
		l.seen[e.ID] = true
		l.first[e.Key] = append(l.first[e.Key], e.Sequence)
	}
}

func (l *orderLog) leave(e *relaybus.RawEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, e.Key)
}

func (l *orderLog) check(perKey int) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, sequences := range l.first {
		if len(sequences) != perKey {
			l.t.Errorf("key %s ran %d events, want %d", key, len(sequences), perKey)
		}
		if !slices.IsSorted(sequences) {
			l.t.Errorf("key %s ran in the order %v", key, sequences)
		}
	}
}

// B13, S4: per key, first executions follow the commits, across retries,
// timeouts, several processes and a crash.
func TestOrderPerKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys, perKey = 12, 15
		log := newOrderLog(t)
		handle := func(ctx context.Context, e *relaybus.RawEvent) error {
			log.enter(e)
			defer log.leave(e)
			n := int(e.Sequence) % 7
			select {
			case <-time.After(time.Duration(n) * 10 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if n == 3 && e.Attempt < 3 {
				return errBoom
			}
			return nil
		}
		s := memstore.New(memstore.Config{})
		change := func(c *relaybus.Config) {
			c.LeaseDuration = 6 * time.Second
			c.Retry.MaxAttempts = 50
			c.ShutdownTimeout = time.Second
		}
		crashing := newBedOn(t, s.Instance(), change, things("h", handle))
		if err := crashing.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b := newBedOn(t, s.Instance(), change, things("h", handle)).start()
		for i := range perKey {
			var messages []relaybus.Message
			for k := range keys {
				messages = append(messages, raw(fmt.Sprintf("e-%d-%d", k, i), relaybus.Key(fmt.Sprint("k-", k))))
			}
			b.publish(messages...)
			pass(30 * time.Millisecond)
			if i == perKey/2 {
				crashing.crash()
				defer func() {
					ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
					cancel()
					_ = crashing.Stop(ctx)
				}()
			}
		}
		pass(5 * time.Minute)
		log.check(perKey)
		if s := b.stats(); s.Pending+s.Running+s.Dead != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// F11: a failing head blocks its own key, and no other.
func TestHeadOfAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran trail
		b := newBed(t, func(c *relaybus.Config) {
			c.Retry = relaybus.RetryPolicy{MaxAttempts: 3, Base: 10 * time.Second, NoJitter: true}
		},
			things("h", func(_ context.Context, e *relaybus.RawEvent) error {
				ran.add(fmt.Sprint(e.ID, "/", e.Attempt))
				if e.ID == "a1" {
					return errBoom
				}
				return nil
			}, relaybus.Concurrency(1))).start()
		a, other := relaybus.Key("a"), relaybus.Key("b")
		b.publish(raw("a1", a), raw("a2", a), raw("a3", a), raw("b1", other), raw("b2", other))
		pass(5 * time.Second)
		early := ran.took()
		if !slices.Contains(early, "b2/1") || slices.Contains(early, "a2/1") {
			t.Errorf("while a1 waits, ran %q", early)
		}
		pass(time.Minute)
		all := slices.DeleteFunc(append(early, ran.took()...), func(s string) bool { return s[0] == 'b' })
		if !slices.Equal(all, []string{"a1/1", "a1/2", "a1/3", "a2/1", "a3/1"}) {
			t.Errorf("ran %q", all)
		}
	})
}

// F11: ten thousand followers behind one head cost the others nothing.
func TestManyFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		log := newOrderLog(t)
		b := newBed(t, nil, things("h", func(ctx context.Context, e *relaybus.RawEvent) error {
			if e.Key != "hot" || e.ID == "e-00000" {
				return d.heed(ctx, e)
			}
			log.enter(e)
			log.leave(e)
			return nil
		})).start()
		b.publish(many(3000, relaybus.Key("hot"))...)
		head := d.next()
		for i := range 10 {
			began := time.Now()
			b.publish(raw(fmt.Sprint("cold-", i)))
			c := d.next()
			if took := time.Since(began); took != 0 {
				t.Errorf("an event of another key waited %v", took)
			}
			c.reply <- nil
		}
		head.reply <- nil
		for b.stats().Pending+b.stats().Running > 0 {
			pass(time.Second)
		}
		log.check(2999)
	})
}

// F36, F11: requeued deliveries of a key run in order, and never beside one
// that runs.
func TestRequeueKeepsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed)).start()
		k := relaybus.Key("k")
		b.publish(raw("e-1", k), raw("e-2", k), raw("e-3", k), raw("e-9", k))
		for range 3 {
			d.next().reply <- relaybus.Permanent(errBoom)
		}
		last := d.next()
		if last.event.ID != "e-9" {
			t.Fatalf("%s runs", last.event.ID)
		}
		ids := []relaybus.DeliveryID{{EventID: "e-3", Handler: "h"}, {EventID: "e-1", Handler: "h"}, {EventID: "e-2", Handler: "h"}}
		if err := b.Requeue(t.Context(), ids...); err != nil {
			t.Fatal(err)
		}
		d.idle()
		last.reply <- nil
		for _, want := range []string{"e-1", "e-2", "e-3"} {
			c := d.next()
			if c.event.ID != want || c.event.Attempt != 1 {
				t.Errorf("%s ran, attempt %d, want %s", c.event.ID, c.event.Attempt, want)
			}
			d.idle()
			c.reply <- nil
		}
	})
}
