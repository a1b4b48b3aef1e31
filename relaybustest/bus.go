package relaybustest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// Bus is a bus on a store in memory, with what a test wants to do and to know.
// The embedded bus is what the code under test gets. It is safe for concurrent
// use.
type Bus struct {
	*relaybus.Bus
	// Clock is the clock of the bus. It is nil when [relaybus.Config.Clock] was
	// set to a clock of another kind.
	Clock *Clock
	// Store is the store of the bus. It keeps completed deliveries until they
	// are purged.
	Store *memstore.Store

	tb      testing.TB
	out     *output
	clock   relaybus.Clock
	owner   string
	handled *record
	shared  *shared
}

// shared is what the buses on one store have in common.
type shared struct{ events, workers atomic.Int64 }

// stopTimeout is how long the end of a test waits for handlers. It is real
// time: nobody moves the test's clock any more.
const stopTimeout = 5 * time.Second

// New returns a bus in memory with the handlers. What cfg leaves open is made
// repeatable:
//
//   - Clock is a [Clock] that shows midnight UTC of January 1, 2000;
//   - GenerateID counts: event-1, event-2, …;
//   - Random returns 0.5, so a retry with jitter waits half its backoff;
//   - CompletionLinger is off, as nobody moves the clock meanwhile;
//   - Owner is worker-1;
//   - Logger writes everything to the log of the test, with the time of the
//     bus's clock.
//
// The bus is not started: handlers run in [Bus.Drain] and [Bus.Advance] alone,
// unless the test calls Start. The test fails at once when the configuration or
// a handler is refused. When it ends, a started bus is stopped, handlers that
// then still run after 5 s are an error, and so is a Drain that is still under
// way.
func New(tb testing.TB, cfg relaybus.Config, handlers ...relaybus.Handler) *Bus {
	tb.Helper()
	return newBus(tb, memstore.New(memstore.Config{History: true}), new(shared), cfg, handlers)
}

// Peer returns another bus on the same data, as if another process had opened
// the database. It has the clock and the counter of ids of b unless cfg says
// otherwise; everything else is as with [New].
//
// As between processes, a bus publishes for the handlers of the other once that
// one has recorded them, which its first Drain or its Start does, and once it
// has read the catalogue again, which it does when
// [relaybus.Config.CatalogInterval] has passed on the clock.
func (b *Bus) Peer(tb testing.TB, cfg relaybus.Config, handlers ...relaybus.Handler) *Bus {
	tb.Helper()
	if cfg.Clock == nil {
		cfg.Clock = b.clock
	}
	return newBus(tb, b.Store.Instance(), b.shared, cfg, handlers)
}

func newBus(tb testing.TB, s *memstore.Store, common *shared, cfg relaybus.Config, handlers []relaybus.Handler) *Bus {
	tb.Helper()
	b := &Bus{Store: s, tb: tb, out: &output{tb: tb}, handled: new(record), shared: common}
	cfg = b.complete(cfg)
	bus, err := relaybus.New(s, cfg)
	if err == nil {
		err = bus.Subscribe(handlers...)
	}
	if err != nil {
		tb.Fatalf("relaybustest: new bus: %v", err)
	}
	b.Bus = bus
	tb.Cleanup(func() {
		b.finish()
		b.out.end()
	})
	return b
}

// complete sets what the test has left open.
func (b *Bus) complete(cfg relaybus.Config) relaybus.Config {
	if cfg.Clock == nil {
		cfg.Clock = NewClock(time.Time{})
	}
	b.clock = cfg.Clock
	b.Clock, _ = cfg.Clock.(*Clock)
	if cfg.GenerateID == nil {
		cfg.GenerateID = func() string { return fmt.Sprintf("event-%d", b.shared.events.Add(1)) }
	}
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0.5 }
	}
	if cfg.CompletionLinger == 0 {
		cfg.CompletionLinger = relaybus.Never
	}
	if cfg.Owner == "" {
		cfg.Owner = fmt.Sprintf("worker-%d", b.shared.workers.Add(1))
	}
	b.owner = cfg.Owner
	if cfg.Logger == nil {
		cfg.Logger = slog.New(newLogHandler(b.out, b.clock))
	}
	cfg.Hooks = append(slices.Clone(cfg.Hooks), b.handled)
	return cfg
}

// finish is the end of the test.
func (b *Bus) finish() {
	b.tb.Helper()
	ctx := context.WithoutCancel(b.tb.Context())
	if _, err := b.Catalog(ctx); errors.Is(err, relaybus.ErrStopped) {
		return // the test stopped it, and has seen what came of it
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	switch err := b.Stop(ctx); {
	case err == nil:
	case !errors.Is(err, relaybus.ErrNotStarted):
		b.tb.Errorf("relaybustest: end of the test: %v", err)
	default:
		running := b.deliveries(func(d relaybus.Delivery) bool {
			return d.Status == relaybus.StatusRunning && d.Owner == b.owner
		})
		if len(running) > 0 {
			b.tb.Errorf("relaybustest: the test ended while handlers ran; wait for the Drain or RunOnce that runs them:\n%s",
				describeDeliveries(running))
		}
	}
}

// Drain runs deliveries until none is due, those included that handlers cause
// meanwhile, and returns how many it ran. Time does not pass, so what is due
// later stays, such as a retry, and also what its handler may not start yet,
// because of its rate or after [relaybus.Unavailable]: [Bus.AssertDrained] fails
// for that. The test fails when the context ends before the work does, and for
// an error of the bus.
func (b *Bus) Drain(ctx context.Context) int {
	b.tb.Helper()
	n, _ := b.drain(ctx)
	return n
}

// drain returns how many deliveries it ran and, when handlers must wait, until
// when the first of them does.
func (b *Bus) drain(ctx context.Context) (n int, held time.Time) {
	b.tb.Helper()
	n, err := b.Bus.Drain(ctx)
	var heldBack *relaybus.HeldBackError
	switch {
	case err == nil:
	case errors.As(err, &heldBack):
		held = heldBack.Until
	default:
		b.errorf("relaybustest: %v", err)
	}
	return n, held
}

// Advance lets d pass, and returns how many deliveries ran: it drains, moves
// the clock to the time at which the next delivery is due or its handler may
// start again, drains again, and so on until d is over. So retries, delayed
// events and probes after an outage on the way run at their times, as they
// would with a started bus.
//
// It waits for every handler that it runs. For a handler that itself waits for
// time to pass use Clock.Advance, beside a Drain or a started bus. The test
// fails as in [Bus.Drain], and when the bus is not on a [Clock].
func (b *Bus) Advance(d time.Duration) int {
	b.tb.Helper()
	if b.Clock == nil {
		b.errorf("relaybustest: advance: the bus runs on a %T, which the test does not move", b.clock)
		return 0
	}
	ctx := b.tb.Context()
	until := b.Clock.Now().Add(max(d, 0))
	total, held := b.drain(ctx)
	for ctx.Err() == nil {
		next, ok := b.nextDue(until)
		if !held.IsZero() && (!ok || held.Before(next)) {
			// Buses count whole milliseconds.
			next = held.Add(time.Millisecond - 1).Truncate(time.Millisecond)
			ok = !next.After(until)
		}
		if !ok {
			break
		}
		b.Clock.AdvanceTo(next)
		var n int
		n, held = b.drain(ctx)
		total += n
	}
	b.Clock.AdvanceTo(until)
	return total + b.Drain(ctx)
}

// nextDue is the next time at which a delivery becomes due, up to until.
func (b *Bus) nextDue(until time.Time) (next time.Time, ok bool) {
	now := b.Clock.Now()
	for _, d := range b.Pending() {
		if d.DueAt.After(now) && !d.DueAt.After(until) && (!ok || d.DueAt.Before(next)) {
			next, ok = d.DueAt, true
		}
	}
	return next, ok
}

// errorf fails the test of the bus, unless it is over.
func (b *Bus) errorf(format string, args ...any) {
	b.tb.Helper()
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	if !b.out.ended {
		b.tb.Errorf(format, args...)
	}
}

// deliveries returns the deliveries that want selects, those of the oldest
// events first, and those of one event in the order of their handlers' ids.
func (b *Bus) deliveries(want func(relaybus.Delivery) bool) []relaybus.Delivery {
	b.tb.Helper()
	ctx := context.WithoutCancel(b.tb.Context())
	var events [][]relaybus.Delivery // a listing has the newest first
	last := ""
	page := store.Page{Limit: store.MaxPageSize}
	for {
		got, err := b.Store.List(ctx, store.Filter{}, page)
		if err != nil {
			b.errorf("relaybustest: %v", err)
			return nil
		}
		for _, d := range got.Deliveries {
			if len(events) == 0 || d.ID.EventID != last {
				events = append(events, nil)
				last = d.ID.EventID
			}
			if want(d) {
				events[len(events)-1] = append(events[len(events)-1], d)
			}
		}
		if page.Cursor = got.Next; page.Cursor == "" {
			slices.Reverse(events)
			return slices.Concat(events...)
		}
	}
}
