package memtransport_test

import (
	"fmt"
	"testing"

	"github.com/relaybus-go/relaybus/transport"
	"github.com/relaybus-go/relaybus/transport/memtransport"
	"github.com/relaybus-go/relaybus/transport/transporttest"
)

// Every case runs in a bubble, and once more outside of one.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, bubble := range []bool{true, false} {
		t.Run(fmt.Sprintf("bubble=%v", bubble), func(t *testing.T) {
			t.Parallel()
			transporttest.Run(t, transporttest.Backend{Bubble: bubble, Open: open})
		})
	}
}

func TestConformanceTopic(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, transporttest.Backend{Bubble: true, Open: func(t *testing.T) transporttest.Broker {
		t.Helper()
		return backend(t, (*memtransport.Broker).Topic)
	}})
}

func open(t *testing.T) transporttest.Broker {
	t.Helper()
	return backend(t, (*memtransport.Broker).Queue)
}

func backend(t *testing.T, add func(b *memtransport.Broker, name string)) transporttest.Broker {
	t.Helper()
	const maxBytes = 10_000
	b := memtransport.NewBroker()
	b.SetMaxBytes(maxBytes)
	links := 0
	return transporttest.Broker{
		New: func() transport.Transport { return b.Transport("memory") },
		Link: func() (string, string) {
			links++
			name := fmt.Sprintf("link %d", links)
			add(b, name)
			return name, name
		},
		Missing: func() string { return "nowhere" },
		Put: func(destination string, body []byte) {
			if err := b.PutRaw(destination, body); err != nil {
				t.Error(err)
			}
		},
		TooLarge:    maxBytes + 1,
		Cut:         b.Disconnect,
		Down:        b.Down,
		Up:          b.Up,
		Freeze:      b.Freeze,
		Thaw:        b.Thaw,
		Remove:      func(destination, _ string) { b.Remove(destination) },
		Restore:     func(destination, _ string) { add(b, destination) },
		Refuse:      func(destination string) { b.Refuse(destination, transport.ErrRefused) },
		Nack:        func(destination string) { b.Refuse(destination, transport.ErrNacked) },
		Accept:      b.Accept,
		LoseConfirm: func() { b.LoseConfirms(1) },
	}
}
