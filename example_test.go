package relaybus_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

type Order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

func Example() {
	orderPlaced := relaybus.Define[Order]("order.placed.v1")
	// sqlite.Open("shop.db") in a service.
	bus, err := relaybus.New(memstore.New(memstore.Config{}), relaybus.Config{Source: "orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = bus.Subscribe(
		orderPlaced.Handle("send-confirmation", func(_ context.Context, e *relaybus.Event[Order]) error {
			fmt.Println("mail for order", e.Payload.ID)
			return nil
		}),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	err = bus.Transaction(ctx, func(ctx context.Context) error {
		// The service's own writes belong here, through the same transaction.
		return bus.Publish(ctx, orderPlaced.New(Order{ID: "o-1", Cents: 4_999}, relaybus.Key("o-1")))
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A service calls bus.Run(ctx); a script or a test drains what is due.
	n, err := bus.Drain(ctx)
	fmt.Println(n, err)
	// Output:
	// mail for order o-1
	// 1 <nil>
}

func ExampleHandle() {
	// By pattern, with the payload as JSON.
	audit := relaybus.Handle("audit", []string{"order.*"}, func(_ context.Context, e *relaybus.RawEvent) error {
		fmt.Printf("%s %s\n", e.Type, e.Payload)
		return nil
	}, relaybus.Concurrency(1))

	bus, err := relaybus.New(memstore.New(memstore.Config{}), relaybus.Config{TransactionMode: relaybus.Optional})
	if err == nil {
		err = bus.Subscribe(audit)
	}
	if err == nil {
		err = bus.Publish(context.Background(), relaybus.Raw("order.paid.v1", []byte(`{"id":"o-1"}`)))
	}
	if err == nil {
		_, err = bus.Drain(context.Background())
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output: order.paid.v1 {"id":"o-1"}
}

func ExamplePermanent() {
	err := relaybus.Permanent(errors.New("the order has no address"))
	fmt.Println(err, relaybus.IsPermanent(err))
	// Output: the order has no address true
}

func ExampleRetryPolicy() {
	policy := relaybus.RetryPolicy{MaxAttempts: 5, Base: 200 * time.Millisecond, Cap: 10 * time.Second}
	orderPlaced := relaybus.Define[Order]("order.placed.v1")
	h := orderPlaced.Handle("invoice", func(context.Context, *relaybus.Event[Order]) error { return nil },
		relaybus.Retry(policy), relaybus.HoldKey())
	fmt.Println(h.ID())
	// Output: invoice
}

func ExampleOutcomeOf() {
	bus, err := relaybus.New(memstore.New(memstore.Config{}), relaybus.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = bus.Transaction(context.Background(), func(context.Context) error { return errors.New("card declined") })
	fmt.Println(relaybus.OutcomeOf(err))
	// Output: not committed
}
