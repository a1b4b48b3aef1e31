package transport_test

import (
	"context"
	"fmt"

	"github.com/relaybus-go/relaybus/transport"
	"github.com/relaybus-go/relaybus/transport/memtransport"
)

// What became of a Send is told apart by two questions.
func ExampleIsOutage() {
	ctx := context.Background()
	broker := memtransport.NewBroker()
	broker.Queue("orders")
	t := broker.Transport("broker")
	if err := t.Connect(ctx); err != nil {
		fmt.Println(err)
		return
	}

	next := func(destination string) string {
		switch err := t.Send(ctx, destination, transport.Message{ID: "e-1", Type: "order.placed.v1"}); {
		case err == nil:
			return "done"
		case transport.IsOutage(err):
			return "wait until the broker is back"
		case transport.IsPermanent(err):
			return "give up"
		default:
			return "try again later"
		}
	}
	fmt.Println(next("orders"))
	fmt.Println(next("missing"))
	broker.Refuse("orders", transport.ErrRefused)
	fmt.Println(next("orders"))
	broker.Down()
	fmt.Println(next("orders"))
	fmt.Println(t.Close(ctx))
	// Output:
	// done
	// try again later
	// give up
	// wait until the broker is back
	// <nil>
}
