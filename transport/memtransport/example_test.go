package memtransport_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/relaybus-go/relaybus/transport"
	"github.com/relaybus-go/relaybus/transport/memtransport"
)

func Example() {
	ctx := context.Background()
	broker := memtransport.NewBroker()
	broker.Queue("orders")

	t := broker.Transport("broker")
	if err := t.Connect(ctx); err != nil {
		fmt.Println(err)
		return
	}
	consumer, err := t.Subscribe(ctx, transport.Subscription{
		ID: "warehouse", Source: "orders",
		Receive: func(_ context.Context, in transport.Inbound) error {
			fmt.Println("received", in.ID, string(in.Payload))
			return nil
		},
		Backoff: func(ctx context.Context, _ int) error { return ctx.Err() },
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	order := transport.Message{ID: "e-1", Type: "order.placed.v1", Key: "o-1", Payload: []byte(`{"total":42}`)}
	broker.Down()
	fmt.Println(t.Send(ctx, "orders", order))
	broker.Up()
	fmt.Println(t.Send(ctx, "orders", order))
	err = broker.Await(ctx, func() bool { return broker.Depth("orders") == 0 })
	fmt.Println(errors.Join(err, consumer.Stop(ctx), t.Close(ctx)))
	// Unordered output:
	// send message: broker unavailable
	// <nil>
	// received e-1 {"total":42}
	// <nil>
}
