package memtransport

import (
	"context"
	"testing"

	"github.com/relaybus-go/relaybus/transport"
)

func TestStoppedConsumersAreForgotten(t *testing.T) {
	t.Parallel()
	b := NewBroker()
	b.Queue("q")
	tr := b.Transport("memory")
	if err := tr.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := tr.Subscribe(t.Context(), transport.Subscription{
			ID: "s", Source: "q",
			Receive: func(context.Context, transport.Inbound) error { return nil },
			Backoff: func(ctx context.Context, _ int) error { return ctx.Err() },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(tr.consumers); n != 0 {
		t.Errorf("the transport still knows %d consumers", n)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
