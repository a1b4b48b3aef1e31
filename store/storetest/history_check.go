package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/relaybus-go/relaybus/store"
)

// Check reports every violation of these rules as an error of the test:
//
//   - I1: each delivery of a committed event was executed, and its last
//     execution ended with a completion or a burial, unless [History.Final]
//     says where else it is.
//   - I2: nothing was executed that was not published, or was rolled back.
//   - I3: no delivery was executed again after a completion, nor again at all
//     unless its execution failed or its worker had a fault; and each effect is
//     there once.
//   - I4: per handler and key, no two executions overlap, unless a fault allows
//     it, and first executions follow the sequence; and an event whose publish
//     began after another's of the key had been committed has the higher
//     sequence.
//   - I5: no completion was stored by two executions.
//   - I6: no execution is still open, and nothing is pending.
func (h *History) Check(tb testing.TB) {
	tb.Helper()
	for _, violation := range h.Violations() {
		tb.Error(violation)
	}
}

// Violations returns what [History.Check] reports.
func (h *History) Violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := checker{History: h, byDelivery: make(map[DeliveryName][]*Execution), byKey: make(map[handlerKey][]*Execution)}
	c.found = append(c.found, h.violations...)
	for _, x := range h.executions {
		c.byDelivery[x.delivery] = append(c.byDelivery[x.delivery], x)
		if x.key != "" {
			hk := handlerKey{x.delivery.Handler, x.key}
			c.byKey[hk] = append(c.byKey[hk], x)
		}
	}
	c.losses()
	c.phantoms()
	c.duplicates()
	c.order()
	c.commitOrder()
	const most = 20
	if len(c.found) > most {
		c.found = append(c.found[:most], fmt.Sprintf("and %d more violations", len(c.found)-most))
	}
	return c.found
}

type handlerKey struct{ handler, key string }

type checker struct {
	*History
	byDelivery map[DeliveryName][]*Execution
	byKey      map[handlerKey][]*Execution
	found      []string
}

func (c *checker) report(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *checker) losses() {
	for _, id := range c.History.order {
		p := c.publications[id]
		if p.outcome != committed {
			continue
		}
		for _, handler := range p.handlers {
			name := DeliveryName{id, handler}
			switch status := c.final[name]; status {
			case store.StatusDead, store.StatusCompleted:
				continue
			case store.StatusPending, store.StatusRunning:
				c.report("I6: %s for %s is still %s", id, handler, status)
				continue
			}
			runs := c.byDelivery[name]
			if len(runs) == 0 {
				c.report("I1: %s for %s was never executed", id, handler)
				continue
			}
			if !slices.ContainsFunc(runs, func(x *Execution) bool { return x.result == succeeded || x.result == died }) {
				c.report("I1: none of %d executions of %s for %s completed or buried it", len(runs), id, handler)
			}
		}
	}
	for name, status := range c.final {
		if status == store.StatusPending || status == store.StatusRunning {
			if p := c.publications[name.EventID]; p == nil || p.outcome != committed {
				c.report("I6: %s for %s is still %s", name.EventID, name.Handler, status)
			}
		}
	}
}

func (c *checker) phantoms() {
	for name, runs := range c.byDelivery {
		p := c.publications[name.EventID]
		switch {
		case p == nil:
			c.report("I2: %s was executed for %s, and never published", name.EventID, name.Handler)
		case p.outcome == notCommitted:
			c.report("I2: %s was executed for %s, but its publish was rolled back", name.EventID, name.Handler)
		case p.key != runs[0].key:
			c.report("I2: %s was published with key %q and executed with key %q", name.EventID, p.key, runs[0].key)
		case !slices.Contains(p.handlers, name.Handler):
			c.report("I2: %s was executed for %s, and published for %v", name.EventID, name.Handler, p.handlers)
		}
	}
}

func (c *checker) duplicates() {
	for name, runs := range c.byDelivery {
		completions := 0
		for i, x := range runs {
			if x.result == unfinished && !x.fault {
				c.report("I6: an execution of %s for %s never ended", name.EventID, name.Handler)
			}
			if x.result == succeeded {
				completions++
			}
			if i == 0 || x.fault {
				continue // One that lost its lease may have been claimed long before it started.
			}
			before := runs[i-1]
			if before.result == succeeded && before.ended < x.began {
				c.report("I3: %s was executed again for %s after its completion", name.EventID, name.Handler)
			}
			if !before.fault && (before.result == unfinished || before.ended > x.began) {
				c.report("I3: %s was executed again for %s while it ran", name.EventID, name.Handler)
			}
		}
		if completions > 1 {
			c.report("I5: %d executions of %s for %s completed it", completions, name.EventID, name.Handler)
		}
	}
	for name, n := range c.effects {
		if n != 1 {
			c.report("I3: %d effects of %s for %s", n, name.EventID, name.Handler)
		}
	}
}

func (c *checker) order() {
	for hk, executions := range c.byKey {
		slices.SortStableFunc(executions, func(a, b *Execution) int { return cmp.Compare(a.began, b.began) })
		first := make(map[string]bool)
		var last *Execution
		var open []*Execution
		for _, x := range executions {
			open = slices.DeleteFunc(open, func(o *Execution) bool { return o.ended != 0 && o.ended < x.began })
			for _, o := range open {
				if !o.fault && !x.fault {
					c.report("I4: %s started for %s while %s of key %q ran", x.delivery.EventID, hk.handler, o.delivery.EventID, hk.key)
				}
			}
			open = append(open, x)
			if first[x.delivery.EventID] {
				continue
			}
			first[x.delivery.EventID] = true
			if last != nil && x.sequence <= last.sequence {
				c.report("I4: key %q of %s: %s (sequence %d) started first after %s (sequence %d)", hk.key, hk.handler,
					x.delivery.EventID, x.sequence, last.delivery.EventID, last.sequence)
			}
			last = x
		}
	}
}

// commitOrder compares neighbours in the order of sequences: if the one with
// the lower sequence began only after some with a higher one had been committed,
// the order is wrong.
func (c *checker) commitOrder() {
	sequences := make(map[string]int64)
	for _, x := range c.executions {
		if known, ok := sequences[x.delivery.EventID]; ok && known != x.sequence {
			c.report("I4: %s has the sequences %d and %d", x.delivery.EventID, known, x.sequence)
		}
		sequences[x.delivery.EventID] = x.sequence
	}
	byKey := make(map[string][]string)
	for id := range sequences {
		if p := c.publications[id]; p != nil && p.key != "" && p.outcome == committed {
			byKey[p.key] = append(byKey[p.key], id)
		}
	}
	for key, ids := range byKey {
		slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(sequences[b], sequences[a]) })
		// From the highest sequence down: the earliest end seen so far belongs
		// to a higher sequence.
		earliest, whose := int64(0), ""
		for i, id := range ids {
			p := c.publications[id]
			if whose != "" && p.began > earliest {
				c.report("I4: %s of key %q was published after %s had been committed, and has the lower sequence", id, key, whose)
			}
			if i > 0 && sequences[id] == sequences[ids[i-1]] {
				c.report("I4: %s and %s of key %q have the same sequence", id, ids[i-1], key)
			}
			if whose == "" || p.ended < earliest {
				earliest, whose = p.ended, id
			}
		}
	}
}
