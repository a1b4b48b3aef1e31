package relaybustest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/relaybustest"
)

// Order is the payload of the examples.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

var (
	OrderPlaced = relaybus.Define[Order]("shop.order-placed.v1")
	OrderPaid   = relaybus.Define[Order]("shop.order-paid.v1")
)

// placeOrder is the service under test.
func placeOrder(ctx context.Context, bus *relaybus.Bus, o Order) error {
	return bus.Transaction(ctx, func(ctx context.Context) error {
		return bus.Publish(ctx, OrderPlaced.New(o, relaybus.Key(o.ID)))
	})
}

// In a test, t is its *testing.T.
func Example() {
	t := newT()
	defer t.end()

	bus := relaybustest.New(t, relaybus.Config{Source: "shop"},
		OrderPlaced.Handle("confirm", func(_ context.Context, e *relaybus.Event[Order]) error {
			fmt.Println("confirm", e.Payload.ID)
			return nil
		}))
	if err := placeOrder(t.Context(), bus.Bus, Order{ID: "o-1", Cents: 1250}); err != nil {
		t.Fatal(err)
	}
	bus.AssertPublished(t, OrderPlaced, 1)
	bus.AssertHandled(t, "confirm", 0)

	bus.Drain(t.Context())
	bus.AssertHandled(t, "confirm", 1)
	bus.AssertDrained(t)
	bus.AssertNoDead(t)
	// Output:
	// confirm o-1
}

func ExampleBus_Advance() {
	t := newT()
	defer t.end()

	var bus *relaybustest.Bus
	bus = relaybustest.New(t, relaybus.Config{},
		OrderPlaced.Handle("charge", func(_ context.Context, e *relaybus.Event[Order]) error {
			fmt.Println(bus.Clock.Now().Format(time.TimeOnly), "attempt", e.Attempt)
			return errors.New("card declined")
		}, relaybus.Retry(relaybus.RetryPolicy{MaxAttempts: 3, Base: time.Second, NoJitter: true})))
	if err := placeOrder(t.Context(), bus.Bus, Order{ID: "o-1"}); err != nil {
		t.Fatal(err)
	}
	bus.Advance(time.Minute)
	bus.AssertDead(t, "charge", 1)
	fmt.Println("dead:", bus.Dead()[0].Error)
	// Output:
	// 00:00:00 attempt 1
	// 00:00:01 attempt 2
	// 00:00:03 attempt 3
	// dead: card declined
}

// What a service has published can be looked at before its transaction is
// committed.
func ExampleBus_AssertStaged() {
	t := newT()
	defer t.end()

	bus := relaybustest.New(t, relaybus.Config{})
	err := bus.Transaction(t.Context(), func(ctx context.Context) error {
		if err := placeOrder(ctx, bus.Bus, Order{ID: "o-1", Cents: 1250}); err != nil { // joins
			return err
		}
		bus.AssertStaged(ctx, t, OrderPlaced, 1)
		bus.AssertPublished(t, OrderPlaced, 0)
		for _, e := range relaybustest.StagedEvents(ctx, bus, OrderPlaced) {
			fmt.Println("staged:", e.Key, e.Payload.Cents)
		}
		return errors.New("out of stock")
	})
	fmt.Println("error:", err)
	bus.AssertPublished(t, OrderPlaced, 0)
	// Output:
	// staged: o-1 1250
	// error: out of stock
}

func ExampleEvents() {
	t := newT()
	defer t.end()

	bus := relaybustest.New(t, relaybus.Config{})
	for _, o := range []Order{{"o-1", 1250}, {"o-2", 990}} {
		if err := placeOrder(t.Context(), bus.Bus, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range relaybustest.Events(bus, OrderPlaced) {
		fmt.Println(e.ID, e.Payload.ID, e.Payload.Cents)
	}
	// Output:
	// event-1 o-1 1250
	// event-2 o-2 990
}

// A failure shows what is there instead.
func ExampleBus_AssertPublished() {
	t := newT()
	defer t.end()

	bus := relaybustest.New(t, relaybus.Config{})
	if err := placeOrder(t.Context(), bus.Bus, Order{ID: "o-1", Cents: 1250}); err != nil {
		t.Fatal(err)
	}
	bus.AssertPublished(t, OrderPaid, 1)
	// Output:
	// published events of type shop.order-paid.v1: got 0, want 1
	// all published events:
	//   event-1  shop.order-placed.v1  key o-1  {"id":"o-1","cents":1250}
}

func ExampleHandleOnce() {
	charge := OrderPlaced.Handle("charge", func(_ context.Context, e *relaybus.Event[Order]) error {
		if e.Payload.Cents <= 0 {
			return relaybus.Permanent(errors.New("nothing to charge"))
		}
		return nil
	})
	ctx := context.Background() // in a test t.Context()
	fmt.Println(relaybustest.HandleOnce(ctx, charge, OrderPlaced.New(Order{ID: "o-1", Cents: 1250})))
	err := relaybustest.HandleOnce(ctx, charge, OrderPlaced.New(Order{ID: "o-2"}))
	fmt.Println(err, "| permanent:", relaybus.IsPermanent(err))
	// Output:
	// <nil>
	// nothing to charge | permanent: true
}

func ExampleClock() {
	clock := relaybustest.NewClock(time.Date(2030, time.March, 1, 9, 0, 0, 0, time.UTC))
	clock.AfterFunc(time.Hour, func() {
		fmt.Println("tea at", clock.Now().Format(time.TimeOnly))
		clock.AfterFunc(30*time.Minute, func() { fmt.Println("wash up at", clock.Now().Format(time.TimeOnly)) })
	})
	stop := clock.AfterFunc(70*time.Minute, func() { fmt.Println("never") })
	stop()
	clock.Advance(2 * time.Hour)
	fmt.Println("now it is", clock.Now().Format(time.TimeOnly))
	// Output:
	// tea at 10:00:00
	// wash up at 10:30:00
	// now it is 11:00:00
}
