package memtransport

import (
	"context"
	"slices"
	"strconv"

	"github.com/relaybus-go/relaybus/transport"
)

// place is a queue or a topic.
type place struct {
	name  string
	topic bool
	// sent is what Send brought here.
	sent []transport.Message
	// log is everything that a topic ever took, for groups that come later.
	log      []transport.Inbound
	taken    int
	groups   map[string]*group
	rejected []Rejected
}

// group is what one audience of a place has still to acknowledge: the only one
// of a queue, or those who share a subscription id of a topic.
type group struct {
	// entries are in the order in which they came.
	entries []*entry
}

// entry is a message that is not acknowledged.
type entry struct {
	in     transport.Inbound
	offers int
	// claim is the consumer's hold on it, or nil while it waits.
	claim *claim
}

// claim is one consumer's hold on an entry. It is lost when the entry has
// another claim or none.
type claim struct {
	entry    *entry
	consumer *consumer
	end      context.CancelCauseFunc
}

func (p *place) add(in transport.Inbound) {
	p.taken++
	in.Position = p.name + "@" + strconv.Itoa(p.taken)
	if p.topic {
		p.log = append(p.log, in)
	}
	for _, g := range p.groups {
		g.entries = append(g.entries, &entry{in: in})
	}
}

// group returns the group of a subscription, and makes it at its first use.
func (p *place) group(id string) *group {
	if !p.topic {
		id = ""
	}
	g := p.groups[id]
	if g == nil {
		g = &group{}
		for _, in := range p.log {
			g.entries = append(g.entries, &entry{in: in})
		}
		p.groups[id] = g
	}
	return g
}

// next returns the oldest entry that waits and has no older one of its key
// before it, or nil.
func (g *group) next() *entry {
	busy := map[string]bool{}
	for _, e := range g.entries {
		key := e.in.Key
		if e.claim == nil && !busy[key] {
			return e
		}
		if key != "" {
			busy[key] = true
		}
	}
	return nil
}

func (g *group) remove(e *entry) {
	if i := slices.Index(g.entries, e); i >= 0 {
		g.entries = slices.Delete(g.entries, i, i+1)
	}
}

// release ends the claim, if there is one, and lets the entry wait again.
func (e *entry) release(cause error) {
	if e.claim == nil {
		return
	}
	e.claim.end(cause)
	e.claim = nil
}

func (c *claim) lost() bool { return c.entry.claim != c }

func cloneMessage(m transport.Message) transport.Message {
	m.Payload = slices.Clone(m.Payload)
	m.Headers = slices.Clone(m.Headers)
	return m
}

func cloneInbound(in transport.Inbound) transport.Inbound {
	in.Message = cloneMessage(in.Message)
	in.Raw = slices.Clone(in.Raw)
	return in
}
