package memstore

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// Append stages the events in the transaction; see [store.Appender]. What it
// returns is what a commit at this moment would do. A transaction that commits
// one of the ids first turns the event into one that exists already, which this
// transaction notices when it commits.
func (s *Store) Append(
	ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time,
) ([]store.Appended, error) {
	const op = "append events"
	if err := alive(ctx, op); err != nil {
		return nil, err
	}
	own, err := s.check(op, tx)
	if err != nil {
		return nil, err
	}
	if err := checkEvents(op, events); err != nil {
		return nil, err
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.done {
		return nil, store.NewError(op, store.ErrTxDone, "", nil)
	}
	result := s.preview(own.work.steps, events)
	own.work.steps = append(own.work.steps, staged{events: cloneEvents(events), now: millis(now)})
	return result, nil
}

func checkEvents(op string, events []store.NewEvent) error {
	for _, e := range events {
		if e.ID == "" || e.Type == "" {
			return store.NewError(op, store.ErrInvalidArgument, "an event needs an id and a type", nil)
		}
		for _, h := range e.Handlers {
			if h.ID == "" {
				return store.NewError(op, store.ErrInvalidArgument, "a handler needs an id", nil)
			}
		}
	}
	return nil
}

// preview returns what an append behind the staged steps would do.
func (s *Store) preview(before []staged, events []store.NewEvent) []store.Appended {
	had := make(map[string]map[string]struct{})
	for _, step := range before {
		for _, e := range step.events {
			if had[e.ID] == nil {
				had[e.ID] = make(map[string]struct{})
			}
			for _, h := range e.Handlers {
				addHandler(had[e.ID], h)
			}
		}
	}
	result := make([]store.Appended, len(events))
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for i, e := range events {
		known, staged := had[e.ID]
		stored := s.db.events[e.ID]
		if known == nil {
			known = make(map[string]struct{})
			had[e.ID] = known
		}
		if stored != nil {
			maps.Copy(known, stored.had)
		}
		result[i].Inserted = !staged && stored == nil
		for _, h := range e.Handlers {
			if addHandler(known, h) {
				result[i].Deliveries++
			}
		}
	}
	return result
}

// addHandler adds the handler's id unless one of its set is there.
func addHandler(had map[string]struct{}, h store.Handler) bool {
	for id := range ids(h) {
		if _, ok := had[id]; ok {
			return false
		}
	}
	had[h.ID] = struct{}{}
	return true
}

// cloneEvents copies what the caller might change before the commit.
func cloneEvents(events []store.NewEvent) []store.NewEvent {
	events = slices.Clone(events)
	for i := range events {
		e := &events[i]
		e.Payload, e.Headers = bytes.Clone(e.Payload), bytes.Clone(e.Headers)
		e.Handlers = slices.Clone(e.Handlers)
		for j := range e.Handlers {
			e.Handlers[j].Aliases = slices.Clone(e.Handlers[j].Aliases)
		}
	}
	return events
}

// append adds an event, or deliveries to the one that has its id.
func (db *database) append(by *Store, n store.NewEvent, now int64) {
	e := db.events[n.ID]
	if e == nil {
		db.position++
		e = &event{data: n.Event, position: db.position, created: millis(n.CreatedAt), completed: ever}
		e.data.Sequence = 0
		if n.Key != "" {
			e.data.Sequence = e.position
		}
		e.data.CreatedAt = instant(e.created)
		e.had = make(map[string]struct{}, len(n.Handlers))
		db.events[n.ID] = e
		db.log.insert(e)
	}
	late := e.position < db.position
	number := lane.Of(e.data.Key, e.data.ID)
	for _, target := range n.Handlers {
		if !addHandler(e.had, target) {
			continue
		}
		h := db.handler(target.ID)
		db.number++
		d := &delivery{
			number:  db.number,
			event:   e,
			handler: h,
			slice:   db.slice(h, number),
			state:   pending,
			due:     millis(n.DueAt),
			updated: now,
		}
		at, _ := slices.BinarySearchFunc(e.deliveries, h.id, byHandler)
		e.deliveries = slices.Insert(e.deliveries, at, d)
		h.deliveries.insert(d)
		if late {
			// It comes before deliveries that a claim may just have picked.
			d.slice.edits++
		}
		db.place(by, d)
	}
	db.retain(e)
}
