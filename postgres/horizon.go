package postgres

import (
	"time"

	"github.com/relaybus-go/relaybus/store/lane"
)

const (
	// lookShare is the share of the time that looks at whole lanes may take.
	lookShare = 20
	// lookBack is how much earlier than at the last look something new may be due,
	// in milliseconds: clocks differ, and transactions last.
	lookBack = 5000
)

// horizon keeps looks cheap beside an old snapshot. While somebody holds one, the
// server can't remove what has ended from the index, and a look at a whole lane walks
// over all of that. When it takes long, the looks in between begin where the last one
// found something, or shortly before it. What comes back before that, such as a
// delivery that another process released, is found by the next look at everything.
// It belongs to whoever has the worker's turn.
type horizon struct {
	// cost is how long the last look at everything took, and whole when it ended.
	cost   time.Duration
	whole  time.Time
	places map[slice]place
	// hidden says that the last look began at the places.
	hidden bool
}

// lanesFrom are lanes and the places from where on they are looked at.
type lanesFrom struct {
	handlers     []int32
	lanes        []int16
	dues, events []int64
}

// from returns nil for a look at everything.
func (h *horizon) from(refs []int32, now time.Time) *lanesFrom {
	if h.places == nil || now.Sub(h.whole) >= lookShare*h.cost {
		return nil
	}
	f := &lanesFrom{}
	for _, ref := range refs {
		for number := range lane.Count {
			at := slice{ref, uint8(number)} //nolint:gosec // below 256
			from, ok := h.places[at]
			if !ok {
				return nil // A handler that the last one did not look at.
			}
			f.handlers, f.lanes = append(f.handlers, ref), append(f.lanes, int16(number)) //nolint:gosec // below 256
			f.dues, f.events = append(f.dues, from.due), append(f.events, from.event)
		}
	}
	return f
}

// looked notes a look that began at began, and when that was by the worker's clock.
func (h *horizon) looked(refs []int32, found []seenLane, now int64, whole bool, began time.Time) {
	if whole {
		h.whole = time.Now()
		h.cost = h.whole.Sub(began)
	}
	h.hidden = !whole
	if h.cost*lookShare < lookMillis*time.Millisecond {
		h.places = nil
		return
	}
	if h.places == nil {
		h.places = make(map[slice]place)
	}
	for _, ref := range refs {
		for number := range lane.Count {
			h.places[slice{ref, uint8(number)}] = place{due: now - lookBack} //nolint:gosec // below 256
		}
	}
	for _, l := range found {
		if l.before(h.places[l.at]) {
			h.places[l.at] = l.place
		}
	}
}

// hides reports whether the last look could not see what is at a place.
func (h *horizon) hides(at slice, p place) bool { return h.hidden && p.before(h.places[at]) }
