package memstore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/relaybus-go/relaybus/store"
)

// row is what the specification says of a delivery.
type row struct {
	dead, hold bool
	attempts   int
	lost       int
	claims     int64
	owner      int64 // who runs it, or 0
}

// facts is the state of the database as the specification sees it.
type facts struct {
	rows   map[store.DeliveryID]row
	owners map[int64]int64 // when each lease ends
}

func (f facts) clone() facts { return facts{maps.Clone(f.rows), maps.Clone(f.owners)} }

// valid says that the job's lease holds.
func (f facts) valid(j *job) bool {
	r, ok := f.rows[j.id()]
	return ok && !r.dead && r.owner == j.owner && r.claims == j.claimed.Lease.Token.Claims
}

func (w *world) facts() facts {
	f := facts{rows: make(map[store.DeliveryID]row), owners: make(map[int64]int64)}
	for _, e := range w.db.events {
		for _, d := range e.deliveries {
			r := row{d.state == dead, d.hold, d.attempts, d.lost, d.claims, 0}
			if o := w.db.running[d]; o != nil {
				r.owner = o.number
			}
			f.rows[d.id()] = r
		}
	}
	for number, o := range w.db.owners {
		f.owners[number] = o.until
	}
	return f
}

// expect returns what the next step of the process must lead to.
func (w *world) expect(p *process) facts {
	expected := w.last.clone()
	n := p.node
	if p == n.processes[1] {
		n.disturbed = true
	} else if l := p.Label(); l != "read" && l != "pick" && l != "tidy" {
		n.disturbed = false // If a reading begins, it is at the end of the step.
	}
	switch p.Label() {
	case "claim":
		if !w.scenario.fine {
			w.reap(n, expected, millis(w.now()))
		}
	case "reap":
		c := p.local.(*claim) //nolint:errcheck,forcetypeassert // a test fails by the panic
		w.reap(n, expected, c.now)
	case "reconcile":
		c := p.local.(*claim) //nolint:errcheck,forcetypeassert // a test fails by the panic
		for id, r := range w.last.rows {
			if r.owner == c.owner.number && !slices.ContainsFunc(n.jobs, func(j *job) bool { return w.last.valid(j) && j.id() == id }) {
				r.owner = 0
				r.claims++
				expected.rows[id] = r
			}
		}
	case "settle":
		s := p.local.(settling) //nolint:errcheck,forcetypeassert // a test fails by the panic
		s.job.valid = w.last.valid(s.job)
		if s.job.valid {
			w.settle(expected.rows, s)
		}
	case "extend":
		j := p.local.(*job) //nolint:errcheck,forcetypeassert // a test fails by the panic
		j.valid = w.last.valid(j)
	case "leave":
		if o := n.store.worker(n.name).current(); o != nil {
			expected.end(o.number, func(*row) {})
		}
	}
	return expected
}

// reads notes what the claim should find, at the moment at which it reads.
func (n *node) reads(c *claim) {
	f := n.world.facts()
	n.readable, n.next = n.world.claimable(f, c.owner, c.now)
	running := 0
	for _, r := range f.rows {
		if r.owner == c.owner.number {
			running++
		}
	}
	// Otherwise the node does not know yet that a claim of its has ended.
	n.disturbed = n.disturbed || c.worker.book.Len() != running
}

// reap changes the rows as a takeover by the node does.
func (w *world) reap(n *node, expected facts, now int64) {
	self := ownerNumber(n.store.worker(n.name).current())
	for number, until := range w.last.owners {
		if number != self && until <= now {
			expected.end(number, func(r *row) { r.attempts++; r.lost++ })
		}
	}
}

// end ends the claims of an owner.
func (f facts) end(owner int64, charge func(r *row)) {
	for id, r := range f.rows {
		if r.owner == owner {
			r.owner = 0
			r.claims++
			charge(&r)
			f.rows[id] = r
		}
	}
}

func ownerNumber(o *owner) int64 {
	if o == nil {
		return 0
	}
	return o.number
}

// settle changes the rows as a settlement does that is applied.
func (w *world) settle(rows map[store.DeliveryID]row, s settling) {
	id := s.job.id()
	r := rows[id]
	r.owner = 0
	r.claims++
	switch s.one.Action {
	case store.Complete:
		delete(rows, id)
		w.completed[id]++
		return
	case store.Reschedule:
		r.attempts++
	case store.Bury:
		r.attempts++
		r.dead = true
		r.hold = s.one.Hold
	case store.Release:
	}
	rows[id] = r
}

// verify checks that a step led to what was expected, and what must always be
// true.
func (w *world) verify(step string, expected facts) error {
	w.last = w.facts()
	if w.replayed {
		return nil
	}
	for id, want := range expected.rows {
		if got, ok := w.last.rows[id]; !ok || got != want {
			return fmt.Errorf("%s: %v is %+v (exists: %t), want %+v", step, id, got, ok, want)
		}
	}
	return w.check(step)
}

// verifyRecord checks the step that records a claim: it may list what nobody
// runs, first of its key, and nothing else.
func (w *world) verifyRecord(p *process, before facts) error {
	c := p.local.(*claim) //nolint:errcheck,forcetypeassert // a test fails by the panic
	now := w.facts()
	if w.replayed {
		w.last = now
		return nil
	}
	expected := before.clone()
	for id, r := range now.rows {
		old := before.rows[id]
		if r.owner == old.owner {
			continue
		}
		if r.owner != c.owner.number || old.owner != 0 || old.dead {
			return fmt.Errorf("I4: %s claimed %v, which was %+v", p.node.name, id, old)
		}
		if err := w.first(id, before); err != nil {
			return fmt.Errorf("I4: %s claimed %v: %w", p.node.name, id, err)
		}
		old.owner = r.owner
		expected.rows[id] = old
	}
	return w.verify(p.node.name+" record", expected)
}

// first returns an error when the delivery is not the first unfinished one of
// its key, or another one of them runs.
func (w *world) first(id store.DeliveryID, f facts) error {
	key := w.published[id]
	if key == "" {
		return nil
	}
	sequence := w.db.events[id.EventID].data.Sequence
	for other, r := range f.rows {
		if other == id || w.published[other] != key {
			continue
		}
		if r.owner != 0 {
			return fmt.Errorf("%v runs", other)
		}
		if (!r.dead || r.hold) && w.db.events[other.EventID].data.Sequence < sequence {
			return fmt.Errorf("%v is unfinished", other)
		}
	}
	return nil
}

// claimable returns what the owner could claim now, and when the next delivery
// becomes due that is first of its key.
func (w *world) claimable(f facts, o *owner, now int64) (ids []store.DeliveryID, next int64) {
	next = never
	for id, r := range f.rows {
		if r.dead || r.owner != 0 || w.first(id, f) != nil {
			continue
		}
		d := w.db.find(id.EventID, id.Handler)
		switch {
		case d.due > now:
			next = min(next, d.due)
		case d.slice.owner == nil || d.slice.owner == o:
			ids = append(ids, id)
		}
	}
	return ids, next
}
