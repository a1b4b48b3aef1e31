package memstore

import (
	"github.com/relaybus-go/relaybus/store/lane"
)

// choice is what a claim decides from a snapshot.
type choice struct {
	taken []candidate
	// left is how many more the claim could have taken.
	left int
	more bool
	// wanted has the free lanes to take before reading again, cut the blocked
	// deliveries that kept lanes from being read to their end.
	wanted []*slice
	cut    []candidate
	// blocked has what waits behind its key, crowded the keys of which so much
	// waits that it is to be parked, full the lanes with work beyond the limit.
	blocked []candidate
	crowded map[lane.HandlerKey[string]]struct{}
	full    map[*slice]struct{}
}

// pick decides. It touches no database.
func (c *claim) pick(snap *snapshot) *choice {
	w := c.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	mark := snap.mark
	if c.store.hooks.forgetEnded {
		mark = w.book.Begin()
		defer w.book.End(mark)
	}
	p := lane.NewPicker[string](c.limit, w.book.Busy)
	ch := &choice{
		crowded: make(map[lane.HandlerKey[string]]struct{}),
		full:    make(map[*slice]struct{}),
	}
	wants := make([]int, len(c.sets))
	for i := range snap.views {
		wants[i] = c.want(&snap.views[i], c.sets[i], mark)
	}
	shares := lane.Shares(c.limit, wants, 0)
	taken := make([]int, len(c.sets))
	full := make([][]candidate, len(c.sets))
	for i, v := range snap.views {
		p.Allow(c.sets[i].id, shares[i])
		full[i] = ch.offer(p, c.sets[i].id, v.candidates, &taken[i])
	}
	// What one handler left of its share goes to the others.
	for p.Left() > 0 {
		for i := range c.sets {
			wants[i] = min(len(full[i]), c.sets[i].limit-taken[i])
		}
		given := false
		for i, share := range lane.Shares(p.Left(), wants, 0) {
			if share > 0 {
				given = true
				p.Allow(c.sets[i].id, share)
				full[i] = ch.offer(p, c.sets[i].id, full[i], &taken[i])
			}
		}
		if !given {
			break
		}
	}
	ch.left = p.Left()
	for i, v := range snap.views {
		ch.more = ch.more || v.more || len(full[i]) > 0 || len(v.cut) > 0 || len(v.free) > 0
		for _, next := range full[i] {
			ch.full[next.slice] = struct{}{}
		}
	}
	for _, next := range ch.blocked {
		if _, ok := snap.views[next.set].cut[next.slice]; ok {
			ch.cut = append(ch.cut, next)
		}
	}
	for _, hk := range p.Park(false) {
		ch.crowded[hk] = struct{}{}
	}
	ch.wanted = c.lanes(snap, shares, taken, ch.left)
	return ch
}

// want is how many deliveries the handler can use of this claim. What is in
// free lanes is only known once they are taken.
func (c *claim) want(v *view, s set, mark lane.Reading) int {
	open := 0
	for i := range v.candidates {
		next := &v.candidates[i]
		next.runs = c.worker.book.Ran(mark, next.id())
		if !next.blocked && !next.runs {
			open++
		}
	}
	if len(v.free) > 0 {
		return s.limit
	}
	return min(open, s.limit)
}

// offer offers the candidates of a handler, and returns those for which there
// was no room.
func (ch *choice) offer(p *lane.Picker[string], id string, candidates []candidate, taken *int) (full []candidate) {
	for _, next := range candidates {
		head := next.head
		if next.elsewhere {
			head = ever
		}
		switch p.Offer(lane.Candidate[string]{
			Handler:  id,
			Key:      next.event.data.Key,
			Sequence: next.event.data.Sequence,
			Head:     head,
			Runs:     next.runs,
		}) {
		case lane.Take:
			ch.taken = append(ch.taken, next)
			*taken++
		case lane.Blocked:
			ch.blocked = append(ch.blocked, next)
		case lane.Full:
			full = append(full, next)
		case lane.Running:
		}
	}
	return full
}

// lanes returns the free lanes to take for the handlers that did not get their
// share from the lanes that are held, or for all while the claim has room: 4,
// then 8, then 16 … in all.
func (c *claim) lanes(snap *snapshot, shares, taken []int, left int) []*slice {
	short := make([]int, len(c.sets))
	count := 0
	for i, v := range snap.views {
		short[i] = max(shares[i]-taken[i], min(left, c.sets[i].limit-taken[i]))
		short[i] = min(short[i], len(v.free))
		if short[i] > 0 {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	room := lane.Rounds(c.round)
	each := max(room/count, 1)
	var wanted []*slice
	for i, v := range snap.views {
		if n := min(each, short[i], room-len(wanted)); n > 0 {
			wanted = append(wanted, v.free[:n]...)
		}
	}
	return wanted
}
