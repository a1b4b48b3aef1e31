package memstore

import (
	"bytes"
	"slices"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// record lists what was picked as claimed, under the live lease of the owner.
// It does not look at the deliveries again: only the owner of a lane claims
// from it, and it leaves out what it runs itself. What operators change is
// found by the lane's counter of edits.
func (c *claim) record() error {
	db := c.store.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.live(c.owner, c.now) && !c.store.hooks.ignoreLease {
		return store.NewError(opClaim, store.ErrLeaseLost, "another worker took over from this owner", nil)
	}
	usable := make([]bool, len(c.sets))
	for i, s := range c.sets {
		usable[i] = db.claimable(s) != nil
	}
	picked := len(c.choice.taken)
	c.choice.taken = slices.DeleteFunc(c.choice.taken, func(next candidate) bool {
		s := next.slice
		return !usable[next.set] || s.owner != c.owner || s.epoch != next.epoch ||
			(s.edits != next.edits && !c.store.hooks.ignoreEdits) ||
			!db.alone(c.sets[next.set], next)
	})
	c.choice.more = c.choice.more || len(c.choice.taken) < picked
	for _, next := range c.choice.taken {
		db.list(c.owner, next.delivery, next.generation)
	}
	return nil
}

// alone checks for a handler with aliases what lanes can't: its ids have lanes
// of their own, so another owner may have claimed a delivery of the same key.
func (db *database) alone(s set, next candidate) bool {
	key := next.event.data.Key
	if key == "" || len(s.ids) < 2 {
		return true
	}
	for _, id := range s.ids {
		h := db.handlers[id]
		if h == nil {
			continue
		}
		if h.busy[key] > 0 {
			return false
		}
		if list := h.keys[key]; list != nil {
			if head, _ := list.first(); head.sequence() < next.event.data.Sequence {
				return false
			}
		}
	}
	return true
}

func (next *candidate) id() store.DeliveryID {
	return store.DeliveryID{EventID: next.event.data.ID, Handler: next.slice.handler.id}
}

func (next *candidate) token() lane.Token {
	return lane.Token{Lane: next.slice.lane, Epoch: next.epoch, Claims: next.generation}
}

// result is what the bus gets.
func (c *claim) result() store.ClaimResult {
	result := store.ClaimResult{More: c.choice.more}
	if c.read.next != never {
		result.NextDue = instant(c.read.next)
	}
	for i := range c.choice.taken {
		next := &c.choice.taken[i]
		e := next.event.data
		e.Payload, e.Headers = bytes.Clone(e.Payload), bytes.Clone(e.Headers)
		result.Deliveries = append(result.Deliveries, store.Claimed{
			Event: e,
			Lease: store.Lease{
				EventID: e.ID,
				Handler: next.slice.handler.id,
				Token:   next.token(),
				Ref:     [2]int64{next.delivery.number, next.event.position},
			},
			Attempt:   next.attempts + 1,
			Lost:      next.lost,
			Alone:     next.alone,
			Followers: next.followers,
			DueAt:     instant(next.due),
		})
	}
	return result
}

// handOut notes what runs from now on.
func (c *claim) handOut() {
	w := c.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims++
	for i := range c.choice.taken {
		next := &c.choice.taken[i]
		id := c.sets[next.set].id
		w.served[id] = w.claims
		if w.owner == c.owner {
			w.book.Add(next.id(), id, next.event.data.Key, next.token())
		}
	}
}
