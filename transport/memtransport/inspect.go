package memtransport

import (
	"slices"

	"github.com/relaybus-go/relaybus/transport"
)

// Rejected is a message that a consumer rejected.
type Rejected struct {
	// Subscription is the id of the subscription that rejected it.
	Subscription string
	// Reason is the text of the error that Receive returned.
	Reason string
	// Inbound is the message as it was handed over.
	Inbound transport.Inbound
}

// Sent returns what Send brought to a queue or topic since it was made, in the
// order in which it was taken, acknowledged or not, duplicates included.
func (b *Broker) Sent(name string) []transport.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	if p == nil {
		return nil
	}
	sent := make([]transport.Message, len(p.sent))
	for i, m := range p.sent {
		sent[i] = cloneMessage(m)
	}
	return sent
}

// Sending returns how many Sends to a destination are in progress.
func (b *Broker) Sending(destination string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sending[destination]
}

// Depth returns how many messages of a queue or topic are not acknowledged
// yet; each subscription id of a topic counts its own.
func (b *Broker) Depth(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	if p == nil {
		return 0
	}
	depth := 0
	for _, g := range p.groups {
		depth += len(g.entries)
	}
	return depth
}

// Rejected returns the messages of a queue or topic that were rejected, in
// that order. Those whose subscription names a dead letter destination are
// there as well.
func (b *Broker) Rejected(name string) []Rejected {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[name]
	if p == nil {
		return nil
	}
	rejected := slices.Clone(p.rejected)
	for i := range rejected {
		rejected[i].Inbound = cloneInbound(rejected[i].Inbound)
	}
	return rejected
}
