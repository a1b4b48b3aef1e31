package memstore

import (
	"github.com/relaybus-go/relaybus/store/lane"
)

// tidy ends a claim: it remembers which lanes have nothing, parks what waits
// behind crowded keys, and hands back the lanes that brought nothing and run
// nothing, with what waits in them parked. The claim holds without it.
func (c *claim) tidy() {
	db := c.store.db
	db.mu.Lock()
	defer db.mu.Unlock()
	c.raise()
	back := c.useless()
	for _, next := range c.choice.blocked {
		if c.parked >= lane.ParkBatch {
			break
		}
		_, crowded := c.choice.crowded[lane.HandlerKey[string]{Handler: c.sets[next.set].id, Key: next.event.data.Key}]
		_, all := back[next.slice]
		if _, full := c.choice.full[next.slice]; crowded || (all && !full) {
			db.park(c, next)
		}
	}
	wake := false
	for s := range back {
		s.owner = nil
		delete(c.owner.slices, s)
		_, full := c.choice.full[s]
		wake = wake || full
	}
	if wake {
		db.wake()
	}
}

// raise remembers until when the lanes that were read to their end have
// nothing that is not claimed.
func (c *claim) raise() {
	s := c.store
	s.refresh(c.now)
	mark := c.read.bounds
	if s.hooks.raiseHinted {
		mark = s.bounds.Begin()
	}
	for _, v := range c.read.views {
		for _, i := range v.idle {
			s.bounds.Raise(i.slice.number, bound(i.next), mark)
		}
	}
}

// useless returns the lanes of the owner that brought this claim nothing and
// run nothing.
func (c *claim) useless() map[*slice]struct{} {
	back := make(map[*slice]struct{})
	if !c.store.db.registered(c.owner) {
		return back
	}
	for s := range c.owner.slices {
		back[s] = struct{}{}
	}
	for _, next := range c.choice.taken {
		delete(back, next.slice)
	}
	for d := range c.owner.listed {
		delete(back, d.slice)
	}
	return back
}

// park parks deliveries in one step of bounded size, and returns how many.
func (c *claim) park(candidates []candidate) int {
	db := c.store.db
	db.mu.Lock()
	defer db.mu.Unlock()
	before := c.parked
	for _, next := range candidates {
		if c.parked-before >= lane.ParkBatch {
			break
		}
		db.park(c, next)
	}
	return c.parked - before
}

// park takes a delivery out of what claims read, if it still waits behind an
// earlier one that is stored under the same handler id. That one brings it back
// when it ends; one under an alias would not know of it.
func (db *database) park(c *claim, next candidate) {
	d := next.delivery
	if d.state != pending || db.running[d] != nil || db.find(d.event.data.ID, d.handler.id) != d {
		return
	}
	if head, _ := d.handler.keys[d.key()].first(); head == d {
		return
	}
	d.slice.ready.remove(d)
	d.state = parked
	c.parked++
}
