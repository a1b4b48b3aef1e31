package relaybus_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// downStore refuses transactions while it is down.
type downStore struct {
	store.Store
	refusals int
}

func (d *downStore) Transact(ctx context.Context, o store.TxOptions, fn func(context.Context, store.Tx) error) error {
	if o.Lazy && d.refusals > 0 {
		d.refusals--
		return store.NewError("begin transaction", store.ErrUnavailable, "", nil)
	}
	return d.Store.Transact(ctx, o, fn)
}

// A store that is down spends no attempt of a transactional handler (B10, B12).
func TestStoreOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := &downStore{Store: memstore.New(memstore.Config{}), refusals: 3}
		bus, err := relaybus.New(down, relaybus.Config{Retry: relaybus.RetryPolicy{MaxAttempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		attempts := make(chan int, 1)
		placed := relaybus.Define[int]("order.placed.v1")
		if err := bus.Subscribe(placed.Handle("ledger", func(_ context.Context, e *relaybus.Event[int]) error {
			attempts <- e.Attempt
			return nil
		}, relaybus.Transactional())); err != nil {
			t.Fatal(err)
		}
		if err := bus.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := bus.Transaction(t.Context(), func(ctx context.Context) error {
			return bus.Publish(ctx, placed.New(1))
		}); err != nil {
			t.Fatal(err)
		}
		if n := <-attempts; n != 1 {
			t.Errorf("the handler got attempt %d, want 1", n)
		}
		synctest.Wait()
		if err := bus.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
