package memtransport_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/relaybus-go/relaybus/transport"
	"github.com/relaybus-go/relaybus/transport/memtransport"
)

// connect returns a broker with the queues and a transport, which is closed at
// the end.
func connect(t *testing.T, queues ...string) (*memtransport.Broker, *memtransport.Transport) {
	t.Helper()
	b := memtransport.NewBroker()
	for _, name := range queues {
		b.Queue(name)
	}
	return b, join(t, b)
}

func join(t *testing.T, b *memtransport.Broker) *memtransport.Transport {
	t.Helper()
	tr := b.Transport("memory")
	if err := tr.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func subscribe(t *testing.T, tr *memtransport.Transport, id, source string, receive func(context.Context, transport.Inbound) error) {
	t.Helper()
	_, err := tr.Subscribe(t.Context(), transport.Subscription{
		ID: id, Source: source, InFlight: 4, Receive: receive,
		Backoff: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func message(id, key string) transport.Message {
	return transport.Message{ID: id, Type: "order.placed.v1", Key: key, Payload: []byte(`{"a":1}`)}
}

func send(t *testing.T, tr *memtransport.Transport, destination, id, key string) {
	t.Helper()
	if err := tr.Send(t.Context(), destination, message(id, key)); err != nil {
		t.Fatal(err)
	}
}

func ids(messages []transport.Message) []string {
	var list []string
	for _, m := range messages {
		list = append(list, m.ID)
	}
	return list
}

func TestHoldKeepsOneDestinationBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "slow", "fast")
		b.Hold("slow")
		sent := make(chan error, 3)
		for range 3 {
			go func() { sent <- tr.Send(t.Context(), "slow", message("m", "")) }()
		}
		synctest.Wait()
		if n := b.Sending("slow"); n != 3 {
			t.Errorf("%d sends in progress, want 3", n)
		}
		if err := tr.Ready(); err != nil {
			t.Errorf("a slow destination makes the transport not ready: %v", err)
		}
		send(t, tr, "fast", "other", "")
		b.Release("slow")
		for range 3 {
			if err := <-sent; err != nil {
				t.Error(err)
			}
		}
		if n := b.Sending("slow"); n != 0 {
			t.Errorf("%d sends in progress at the end", n)
		}
	})
}

func TestLoseConfirmsTakesTheMessage(t *testing.T) {
	t.Parallel()
	b, tr := connect(t, "q")
	b.LoseConfirms(2)
	for range 2 {
		if err := tr.Send(t.Context(), "q", message("a", "")); !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("got %v, want an outage", err)
		}
	}
	send(t, tr, "q", "a", "")
	if got := ids(b.Sent("q")); !slices.Equal(got, []string{"a", "a", "a"}) {
		t.Errorf("the broker has %v", got)
	}
}

func TestLoseAcksDeliversAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "q")
		b.LoseAcks(2)
		var redeliveries []int
		subscribe(t, tr, "s", "q", func(_ context.Context, in transport.Inbound) error {
			redeliveries = append(redeliveries, in.Redeliveries)
			return nil
		})
		send(t, tr, "q", "a", "k")
		synctest.Wait()
		if want := []int{0, 1, 2}; !slices.Equal(redeliveries, want) {
			t.Errorf("redeliveries %v, want %v", redeliveries, want)
		}
		if b.Depth("q") != 0 {
			t.Error("the message is not acknowledged")
		}
	})
}

func TestRefuseUsesTheClass(t *testing.T) {
	t.Parallel()
	b, tr := connect(t, "q", "other")
	for _, class := range []error{transport.ErrRefused, transport.ErrNacked, transport.ErrUnroutable} {
		b.Refuse("q", class)
		if err := tr.Send(t.Context(), "q", message("a", "")); !errors.Is(err, class) {
			t.Errorf("got %v, want %v", err, class)
		}
	}
	send(t, tr, "other", "a", "")
	b.Accept("q")
	send(t, tr, "q", "b", "")
	if got := ids(b.Sent("q")); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the broker has %v", got)
	}
}

func TestSendRefusesWhatHasNoName(t *testing.T) {
	t.Parallel()
	_, tr := connect(t, "q")
	if err := tr.Send(t.Context(), "", message("a", "")); !errors.Is(err, transport.ErrRefused) {
		t.Errorf("no destination: %v", err)
	}
	if err := tr.Send(t.Context(), "q", message("", "")); !errors.Is(err, transport.ErrRefused) {
		t.Errorf("no id: %v", err)
	}
}

func TestNothingIsDeliveredWhileDownOrFrozen(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*memtransport.Broker){
		"down":   (*memtransport.Broker).Down,
		"frozen": (*memtransport.Broker).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, tr := connect(t, "q")
				var got log
				subscribe(t, tr, "s", "q", got.receive)
				fault(b)
				if err := b.Put("q", message("a", "")); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if len(got.ids) != 0 {
					t.Errorf("received %v", got.ids)
				}
				b.Heal()
				synctest.Wait()
				if !slices.Equal(got.ids, []string{"a"}) {
					t.Errorf("received %v afterwards", got.ids)
				}
			})
		})
	}
}

func TestHealEndsEveryFault(t *testing.T) {
	t.Parallel()
	b, tr := connect(t, "q")
	b.Down()
	b.Freeze()
	b.Hold("q")
	b.Refuse("q", transport.ErrRefused)
	b.SetMaxBytes(1)
	b.LoseConfirms(1)
	b.LoseAcks(1)
	b.Heal()
	send(t, tr, "q", "a", "")
	if err := tr.Ready(); err != nil {
		t.Error(err)
	}
}
