package memtransport

import (
	"context"
	"fmt"
	"strconv"

	"github.com/relaybus-go/relaybus/transport"
)

// Send adds a message to a queue or topic. A destination that does not exist is
// [transport.ErrUnroutable]; a message without an id, and an empty destination,
// are [transport.ErrRefused].
func (t *Transport) Send(ctx context.Context, destination string, m transport.Message) error {
	const op = "send message"
	b := t.broker
	b.countSend(destination, 1)
	defer b.countSend(destination, -1)
	return t.await(ctx, op, func() (bool, error) {
		f := &b.faults
		p := b.places[destination]
		size := len(m.Payload) + len(m.Headers)
		switch {
		case !t.connected:
			return true, transport.NewError(op, transport.ErrNotConnected, "", nil)
		case f.down:
			return true, transport.NewError(op, transport.ErrUnavailable, "", nil)
		case f.frozen, f.held[destination]:
			return false, nil
		case destination == "":
			return true, transport.NewError(op, transport.ErrRefused, "the destination is empty", nil)
		case m.ID == "":
			return true, transport.NewError(op, transport.ErrRefused, "the message has no id", nil)
		case f.refused[destination] != nil:
			return true, transport.NewError(op, f.refused[destination], "", nil)
		case p == nil:
			return true, transport.NewError(op, transport.ErrUnroutable, strconv.Quote(destination)+" does not exist", nil)
		case f.maxBytes > 0 && size > f.maxBytes:
			detail := fmt.Sprintf("%d bytes, and the broker takes %d", size, f.maxBytes)
			return true, transport.NewError(op, transport.ErrTooLarge, detail, nil)
		}
		p.sent = append(p.sent, cloneMessage(m))
		p.add(transport.Inbound{Message: cloneMessage(m)})
		b.broadcast()
		if f.loseConfirms > 0 {
			f.loseConfirms--
			return true, transport.NewError(op, transport.ErrUnavailable, "the connection broke before the confirmation", nil)
		}
		return true, nil
	})
}

func (b *Broker) countSend(destination string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending[destination] += n
	if b.sending[destination] == 0 {
		delete(b.sending, destination)
	}
	b.broadcast()
}
