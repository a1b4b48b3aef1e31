package memtransport

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/relaybus-go/relaybus/transport"
)

// Broker is a message broker in memory. It has no goroutine of its own and
// needs no Close.
type Broker struct {
	// mu guards everything below, and the state of all transports and
	// consumers: a broker is small, and one lock has no order to get wrong.
	mu sync.Mutex
	// changed is closed and replaced at every change, to wake all who wait.
	changed chan struct{}
	places  map[string]*place
	faults  faults
	sending map[string]int
}

// NewBroker returns a broker without queues and topics.
func NewBroker() *Broker {
	return &Broker{
		changed: make(chan struct{}),
		places:  map[string]*place{},
		sending: map[string]int{},
		faults:  faults{held: map[string]bool{}, refused: map[string]error{}},
	}
}

// Queue makes a queue: its messages are shared by all of its consumers. If the
// name exists, as a queue or a topic, nothing happens.
func (b *Broker) Queue(name string) { b.add(name, false) }

// Topic makes a topic: each subscription id gets every message, those from
// before its first Subscribe included. If the name exists, as a queue or a
// topic, nothing happens.
func (b *Broker) Topic(name string) { b.add(name, true) }

func (b *Broker) add(name string, topic bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.places[name] != nil {
		return
	}
	p := &place{name: name, topic: topic, groups: map[string]*group{}}
	if !topic {
		p.group("")
	}
	b.places[name] = p
	b.broadcast()
}

// Remove deletes a queue or topic with its messages. Its consumers are not
// ready until it is made again, and then go on by themselves.
func (b *Broker) Remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	if p == nil {
		return
	}
	delete(b.places, name)
	for _, g := range p.groups {
		for _, e := range g.entries {
			e.release(transport.NewError("receive from "+strconv.Quote(name), transport.ErrUnavailable, "the source was removed", nil))
		}
	}
	b.broadcast()
}

// Put adds a message as another program would, whatever the faults are. A name
// that does not exist is [transport.ErrUnroutable].
func (b *Broker) Put(name string, m transport.Message) error {
	return b.put(name, transport.Inbound{Message: cloneMessage(m)})
}

// PutRaw adds a body that is no event; it is received as a malformed message.
// A name that does not exist is [transport.ErrUnroutable].
func (b *Broker) PutRaw(name string, body []byte) error {
	malformed := transport.NewError("decode message", transport.ErrRefused, "the body is not an event", nil)
	return b.put(name, transport.Inbound{Raw: slices.Clone(body), Malformed: malformed})
}

func (b *Broker) put(name string, in transport.Inbound) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	if p == nil {
		return transport.NewError("put message", transport.ErrUnroutable, strconv.Quote(name)+" does not exist", nil)
	}
	p.add(in)
	b.broadcast()
	return nil
}

// Await returns nil when done returns true. It calls done at once and after
// each change of the broker or of one of its transports, and ends with the
// context's error.
func (b *Broker) Await(ctx context.Context, done func() bool) error {
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// broadcast wakes all who wait. The lock is held.
func (b *Broker) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// disconnect takes back every message that some consumer has. The lock is held.
func (b *Broker) disconnect() {
	broken := transport.NewError("receive", transport.ErrUnavailable, "the connection broke", nil)
	b.release(broken, func(*claim) bool { return true })
	b.broadcast()
}

// release takes back the messages of some claims. The lock is held.
func (b *Broker) release(cause error, which func(*claim) bool) {
	for p := range maps.Values(b.places) {
		for g := range maps.Values(p.groups) {
			for _, e := range g.entries {
				if e.claim != nil && which(e.claim) {
					e.release(cause)
				}
			}
		}
	}
}
