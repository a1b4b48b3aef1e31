package relaybus_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
)

// panickingHook implements every hook, and panics in each.
type panickingHook struct{}

func (panickingHook) OnPublished(context.Context, relaybus.Published) { panic("secret") }
func (panickingHook) OnPublishing(context.Context, *relaybus.Message) { panic("secret") }
func (panickingHook) OnUnhandled(context.Context, relaybus.EventInfo) { panic("secret") }
func (panickingHook) OnClaimed(relaybus.Claimed)                      { panic("secret") }
func (panickingHook) OnStarted(relaybus.Attempt)                      { panic("secret") }
func (panickingHook) OnSucceeded(relaybus.Attempt)                    { panic("secret") }
func (panickingHook) OnRetried(relaybus.Attempt)                      { panic("secret") }
func (panickingHook) OnBuried(relaybus.Attempt)                       { panic("secret") }
func (panickingHook) OnReleased(relaybus.Attempt)                     { panic("secret") }
func (panickingHook) OnLeaseLost(relaybus.Attempt)                    { panic("secret") }
func (panickingHook) OnSettled(relaybus.StoreCall)                    { panic("secret") }
func (panickingHook) OnRenewed(relaybus.StoreCall)                    { panic("secret") }
func (panickingHook) OnPurged(relaybus.Purged)                        { panic("secret") }
func (panickingHook) OnOrphaned(relaybus.Orphaned)                    { panic("secret") }

// headerHook adds a header to everything that is published.
type headerHook struct{ value any }

func (h headerHook) OnPublishing(_ context.Context, m *relaybus.Message) {
	m.SetHeader("trace", h.value)
	m.SetHeader("type", m.Type())
}

func TestHookPublishing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) { c.Hooks = append(c.Hooks, headerHook{"t-1"}) })
		shared := raw("e-1", relaybus.Header("a", 1))
		b.publish(shared, raw("e-2", relaybus.Header("trace", "own")),
			raw("e-3", relaybus.RawHeaders([]byte(`{"trace":"own","z":1}`))), raw("e-4"))
		b.publish(shared) // a message is not changed by being published
		for id, want := range map[string]string{
			"e-1": `{"a":1,"trace":"t-1","type":"thing.done"}`,
			"e-2": `{"trace":"own","type":"thing.done"}`,
			"e-3": `{"trace":"own","z":1,"type":"thing.done"}`,
			"e-4": `{"trace":"t-1","type":"thing.done"}`,
		} {
			e, _, err := b.Event(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(e.Headers.JSON()); got != want {
				t.Errorf("headers of %s are %s, want %s", id, got, want)
			}
		}
		bad := newBed(t, func(c *relaybus.Config) { c.Hooks = append(c.Hooks, headerHook{"\xff"}) })
		if err := bad.tryPublish(raw("e-1")); !errors.Is(err, relaybus.ErrValidation) {
			t.Errorf("a header of invalid UTF-8 from a hook: %v", err)
		}
	})
}

// B19: every step is told, in order, with durations.
func TestHooksOfADelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		steps := &stepHook{}
		b := newBed(t, func(c *relaybus.Config) { c.Hooks = append(c.Hooks, steps); c.Retry.MaxAttempts = 2 },
			things("h", func(_ context.Context, e *relaybus.RawEvent) error {
				pass(3 * time.Second)
				if e.ID == "good" {
					return nil
				}
				return errBoom
			}))
		b.publish(raw("bad", relaybus.Key("k"), relaybus.CorrelationID("c")), raw("good"))
		b.drain()
		pass(time.Minute)
		b.drain()
		seen := b.seen.took()
		slices.Sort(seen)
		if !slices.Equal(seen, []string{
			"buried h bad 2", "published [bad good] 2 committed", "retried h bad 1",
			"started h bad 1", "started h bad 2", "started h good 1", "succeeded h good 1",
		}) {
			t.Errorf("hooks: %q", seen)
		}
		for _, a := range steps.attempts {
			if a.Took != 3*time.Second || a.DueAt.IsZero() {
				t.Errorf("attempt %+v", a)
			}
			if a.Event.ID == "bad" && (a.Event.Key != "k" || a.Event.CorrelationID != "c" || a.Event.Type != "thing.done" || !errors.Is(a.Err, errBoom)) {
				t.Errorf("attempt %+v", a)
			}
			if a.Number == 1 && a.Event.ID == "bad" && a.Delay != time.Second {
				t.Errorf("delay %v", a.Delay)
			}
		}
		if steps.claims == 0 || steps.settled != 3 {
			t.Errorf("told of %d claims and %d settled deliveries", steps.claims, steps.settled)
		}
		if _, err := b.PurgeExpired(t.Context()); err != nil || steps.purges != 1 {
			t.Errorf("told of %d purges, %v", steps.purges, err)
		}
	})
}

type stepHook struct {
	mu              sync.Mutex
	attempts        []relaybus.Attempt
	claims, settled int
	renewals        int
	purges          int
	orphans         []relaybus.Orphaned
	errs            []error
}

func (h *stepHook) lock() func() { h.mu.Lock(); return h.mu.Unlock }

func (h *stepHook) ended(a relaybus.Attempt) {
	defer h.lock()()
	h.attempts = append(h.attempts, a)
}
func (h *stepHook) OnSucceeded(a relaybus.Attempt) { h.ended(a) }
func (h *stepHook) OnRetried(a relaybus.Attempt)   { h.ended(a) }
func (h *stepHook) OnBuried(a relaybus.Attempt)    { h.ended(a) }
func (h *stepHook) OnPurged(relaybus.Purged)       { defer h.lock()(); h.purges++ }
func (h *stepHook) OnClaimed(c relaybus.Claimed) {
	defer h.lock()()
	h.claims++
	if c.Err != nil {
		h.errs = append(h.errs, c.Err)
	}
}
func (h *stepHook) OnSettled(c relaybus.StoreCall) { defer h.lock()(); h.settled += c.Deliveries }
func (h *stepHook) OnRenewed(c relaybus.StoreCall) {
	defer h.lock()()
	h.renewals++
	if c.Err != nil {
		h.errs = append(h.errs, c.Err)
	}
}

func (h *stepHook) OnOrphaned(o relaybus.Orphaned) {
	defer h.lock()()
	h.orphans = append(h.orphans, o)
}

// A hook is told of a success once it is durable, not before.
func TestHookSucceededIsDurable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		b.start()
		b.store.failBefore(opSettle, times(3, unavailable()))
		b.publish(raw("e-1"))
		synctest.Wait()
		if n := b.seen.count("succeeded h e-1 1"); n != 0 {
			t.Error("told before the store had it")
		}
		pass(time.Second)
		synctest.Wait()
		if n := b.seen.count("succeeded h e-1 1"); n != 1 {
			t.Errorf("told %d times, want once: %q", n, b.seen.took())
		}
	})
}

// A hook's panic is logged without its value.
func TestHookPanicIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := newLogBook()
		b := newBed(t, func(c *relaybus.Config) {
			c.Hooks = append([]relaybus.Hook{panickingHook{}}, c.Hooks...)
			c.Logger = log.logger()
		}, things("h", ignore))
		b.publish(raw("e-1"))
		b.drain()
		if log.count("a hook panicked") == 0 || strings.Contains(log.String(), "secret") {
			t.Errorf("log: %s", log)
		}
		if n := b.seen.count("succeeded h e-1 1"); n != 1 {
			t.Error("the next hook was not told")
		}
	})
}
