package simulation_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// What seeds have found, as small tests.

// A lease that could not be renewed is given up before it ends. When the store
// answers again before anybody has taken over, the owner lives on: the delivery
// must be given back, or it is listed as running for ever.
func TestGivenUpDeliveryIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		s := &mistaken{Store: memstore.New(memstore.Config{})}
		s.extend = func(
			s *memstore.Store, ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration,
		) ([]bool, error) {
			if cut.Load() {
				return nil, store.NewError("extend leases", store.ErrUnavailable, "cut", nil)
			}
			return s.Extend(ctx, owner, leases, now, lease)
		}
		var runs atomic.Int64
		done := make(chan int, 1)
		bus := newBus(t, s, relaybus.Handle("h", []string{"t"}, func(ctx context.Context, e *relaybus.RawEvent) error {
			if runs.Add(1) == 1 {
				cut.Store(true)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), relaybus.ErrLeaseLost) {
					t.Errorf("the context ended with %v", context.Cause(ctx))
				}
				cut.Store(false)
				return context.Cause(ctx)
			}
			done <- e.Attempt
			return nil
		}))
		start(t, bus)
		publish(t, bus)
		select {
		case attempt := <-done:
			if attempt != 1 {
				t.Errorf("the second execution is attempt %d: a store that is down is no fault of the handler", attempt)
			}
		case <-time.After(time.Minute):
			t.Error("the delivery did not run again within a minute, with a lease of a second")
		}
	})
}

// An event that is published while the start of its process has not yet read
// the catalogue must not miss the handlers of other processes.
func TestPublishBeforeTheCatalogIsRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		start bool
	}{{"without a start", false}, {"while the start hangs", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New(memstore.Config{})
				got := make(chan string, 10)
				start(t, newBus(t, db, relaybus.Handle("elsewhere", []string{"t"}, func(_ context.Context, e *relaybus.RawEvent) error {
					got <- e.ID
					return nil
				})))
				s := &hangingSetup{Store: db.Instance()}
				bus := newBus(t, s)
				if tt.start {
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- bus.Start(ctx) }()
					defer func() {
						cancel()
						if err := <-ended; err == nil {
							t.Error("Start returned nil from a setup that hung")
						}
					}()
					synctest.Wait()
				}
				s.down.Store(true)
				if err := bus.Publish(t.Context(), relaybus.Raw("t", []byte(`1`))); !errors.Is(err, relaybus.ErrUnavailable) {
					t.Errorf("Publish returned %v while it can't be known who handles the event", err)
				}
				s.down.Store(false)
				publish(t, bus)
				select {
				case id := <-got:
					if id != "e" {
						t.Errorf("the other process got %q", id)
					}
				case <-time.After(time.Minute):
					t.Error("the handler of another process missed the event")
				}
			})
		})
	}
}

// hangingSetup is a store whose Setup never answers, and whose catalogue can
// be down.
type hangingSetup struct {
	*memstore.Store
	down atomic.Bool
}

func (*hangingSetup) Setup(ctx context.Context) error {
	<-ctx.Done()
	return store.NewError("set up store", store.ErrTimeout, "", context.Cause(ctx))
}

func (s *hangingSetup) Handlers(ctx context.Context) ([]store.HandlerEntry, error) {
	if s.down.Load() {
		return nil, store.NewError("read handlers", store.ErrUnavailable, "", nil)
	}
	return s.Store.Handlers(ctx)
}

// A delivery that is to run alone asks for room. When that takes too long, and
// the delivery is gone by then, the dispatcher must wait for something else, and
// not look at the clock again and again.
func TestWaitingForRoomDoesNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New(memstore.Config{})
		var claims atomic.Int64
		s := &mistaken{Store: db.Instance()}
		s.claim = func(s *memstore.Store, ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
			claims.Add(1)
			result, err := s.Claim(ctx, r)
			for i := range result.Deliveries {
				if d := &result.Deliveries[i]; d.Event.ID == "e" {
					// As if its workers had died often.
					d.Attempt, d.Lost, d.Alone = 11, 10, true
				}
			}
			return result, err
		}
		release := make(chan struct{})
		ran := make(chan struct{}, 100)
		bus := newBus(t, s, relaybus.Handle("h", []string{"t"}, func(_ context.Context, e *relaybus.RawEvent) error {
			if e.ID != "e" {
				<-release
			}
			ran <- struct{}{}
			return nil
		}))
		start(t, bus)
		if err := bus.Publish(t.Context(), relaybus.Raw("t", []byte(`1`), relaybus.ID("slow"))); err != nil {
			t.Fatal(err)
		}
		publish(t, bus)
		<-time.After(100 * time.Millisecond)
		if err := db.BuryPending(t.Context(), store.DeliveryID{EventID: "e", Handler: "h"}, "", time.Now()); err != nil {
			t.Fatalf("the delivery was to wait for room: %v", err)
		}
		<-time.After(10 * time.Second) // virtual; a spinning dispatcher never gets there
		if n := claims.Load(); n > 100 {
			t.Errorf("%d claims in 10 s", n)
		}
		close(release)
		<-ran
	})
}

func newBus(t *testing.T, s store.Store, handlers ...relaybus.Handler) *relaybus.Bus {
	t.Helper()
	bus, err := relaybus.New(s, relaybus.Config{
		TransactionMode: relaybus.Optional, TransactionTimeout: time.Second / 2, LeaseDuration: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Subscribe(handlers...); err != nil {
		t.Fatal(err)
	}
	return bus
}

// start starts a bus until the end of the test.
func start(t *testing.T, bus *relaybus.Bus) {
	t.Helper()
	if err := bus.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
}

func publish(t *testing.T, bus *relaybus.Bus) {
	t.Helper()
	if err := bus.Publish(t.Context(), relaybus.Raw("t", []byte(`1`), relaybus.ID("e"))); err != nil {
		t.Fatal(err)
	}
}

// While the store refuses transactions, a transactional handler must not be left
// alone for longer and longer: when the store is back, it goes on with a poll.
func TestHandlerGoesOnWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &refusingStore{Store: memstore.New(memstore.Config{})}
		done := make(chan struct{})
		bus := newBus(t, s, relaybus.Handle("h", []string{"t"}, func(context.Context, *relaybus.RawEvent) error {
			close(done)
			return nil
		}, relaybus.Transactional()))
		start(t, bus)
		s.down.Store(true)
		publish(t, bus)
		<-time.After(10 * time.Minute)
		s.down.Store(false)
		began := time.Now()
		<-done
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the handler started %v after the store was back, with a lease and a poll of a second", took)
		}
	})
}

// refusingStore can be down for the transactions of handlers.
type refusingStore struct {
	*memstore.Store
	down atomic.Bool
}

func (s *refusingStore) Transact(
	ctx context.Context, o store.TxOptions, fn func(ctx context.Context, tx store.Tx) error,
) error {
	return s.Store.Transact(ctx, o, func(ctx context.Context, tx store.Tx) error {
		if s.down.Load() && o.Lazy {
			return store.NewError("begin transaction", store.ErrUnavailable, "", nil)
		}
		return fn(ctx, tx)
	})
}
