package postgres

import (
	"time"

	"github.com/relaybus-go/relaybus/store/lane"
)

const (
	// lookTime is how long a look may take before the next ones are narrowed.
	lookTime = 50 * time.Millisecond
	// lookBack is how much earlier than at the last look something new may be due,
	// in milliseconds: clocks differ, and transactions last.
	lookBack = 5000
)

// horizon keeps looks cheap beside an old snapshot. While somebody holds one, the
// server can't remove what has ended from the index, and a look at a whole lane walks
// over all of that. When that takes long, looks begin where the last one found
// something, or shortly before it, except in a few lanes in turn, as many as take no
// longer than lookTime. What comes back from before that, such as a delivery that
// another process released, is found when it is the turn of its lane. It belongs to
// whoever has the worker's turn.
type horizon struct {
	// places has from where on each lane is looked at. It is nil for looks at
	// everything.
	places map[slice]place
	// share is how many lanes a look looks at as a whole, and next which comes then.
	share, next int
	// whole are those of the last look.
	whole map[slice]struct{}
}

// lanesFrom are lanes and the places from where on they are looked at.
type lanesFrom struct {
	handlers     []int32
	lanes        []int16
	dues, events []int64
}

// from returns nil for a look at everything.
func (h *horizon) from(refs []int32) *lanesFrom {
	h.whole = nil
	if h.places == nil {
		return nil
	}
	f := &lanesFrom{}
	h.whole = make(map[slice]struct{}, h.share)
	n := len(refs) * lane.Count
	for i, ref := range refs {
		for number := range lane.Count {
			at := slice{ref, uint8(number)}
			from, ok := h.places[at]
			if turn := (i*lane.Count + number - h.next%n + n) % n; !ok || turn < h.share {
				from = place{}
				h.whole[at] = struct{}{}
			}
			f.handlers, f.lanes = append(f.handlers, ref), append(f.lanes, int16(number))
			f.dues, f.events = append(f.dues, from.due), append(f.events, from.event)
		}
	}
	h.next = (h.next + h.share) % n
	return f
}

// looked notes what a look has found, when that was by the worker's clock, and how
// long it took.
func (h *horizon) looked(refs []int32, found []seenLane, now int64, took time.Duration) {
	n := len(refs) * lane.Count
	switch {
	case h.places == nil && took < lookTime:
		return
	case h.places == nil:
		h.places = make(map[slice]place, n)
		h.share = max(int(int64(n)*int64(lookTime)/int64(took)), 1)
	case took > 2*lookTime:
		h.share = max(h.share/2, 1)
	case took < lookTime:
		h.share *= 2
	}
	if h.share >= n {
		*h = horizon{}
		return
	}
	for _, ref := range refs {
		for number := range lane.Count {
			h.places[slice{ref, uint8(number)}] = place{due: now - lookBack}
		}
	}
	for _, l := range found {
		if l.before(h.places[l.at]) {
			h.places[l.at] = l.place
		}
	}
}

// hides reports whether the last look could not see what is at a place.
func (h *horizon) hides(at slice, p place) bool {
	if h.whole == nil {
		return false
	}
	_, whole := h.whole[at]
	return !whole && p.before(h.places[at])
}
