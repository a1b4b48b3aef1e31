package memstore

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// BuryPending makes a pending delivery dead; see [store.Operator].
func (s *Store) BuryPending(ctx context.Context, id store.DeliveryID, reason string, now time.Time) error {
	return s.operate(ctx, "bury pending delivery", func(op string) error {
		d, err := s.db.waiting(op, id)
		if err != nil {
			return err
		}
		s.db.edit(s, d, millis(now), func(d *delivery) {
			d.state = dead
			d.died = millis(now)
			d.hold = false
			d.alone = false
			d.failure = reason
		})
		return nil
	})
}

// ReschedulePending changes when a pending delivery is due; see
// [store.Operator].
func (s *Store) ReschedulePending(ctx context.Context, id store.DeliveryID, dueAt, now time.Time) error {
	return s.operate(ctx, "reschedule pending delivery", func(op string) error {
		d, err := s.db.waiting(op, id)
		if err != nil {
			return err
		}
		s.db.edit(s, d, millis(now), func(d *delivery) { d.due = millis(dueAt) })
		return nil
	})
}

// Skip lets the deliveries behind a dead one pass; see [store.Operator].
func (s *Store) Skip(ctx context.Context, id store.DeliveryID, now time.Time) error {
	return s.operate(ctx, "skip dead delivery", func(op string) error {
		d := s.db.find(id.EventID, id.Handler)
		switch {
		case d == nil:
			return store.NewError(op, store.ErrNotFound, "", nil)
		case d.state != dead:
			return s.db.misplaced(op, d, "the delivery is not dead")
		case !d.hold:
			return store.NewError(op, store.ErrState, "the delivery holds no key", nil)
		}
		s.db.edit(s, d, millis(now), func(d *delivery) { d.hold = false })
		return nil
	})
}

// CancelEvent removes the deliveries of an event that nobody has claimed; see
// [store.Operator].
func (s *Store) CancelEvent(ctx context.Context, eventID string, now time.Time) error {
	return s.operate(ctx, "cancel event", func(op string) error {
		db := s.db
		e := db.events[eventID]
		if e == nil {
			return store.NewError(op, store.ErrNotFound, "", nil)
		}
		ended := len(e.deliveries) < len(e.had)
		for _, d := range e.deliveries {
			if db.running[d] != nil {
				return store.NewError(op, store.ErrRunning, "", nil)
			}
			ended = ended || d.state == dead || d.claims > 0
		}
		if ended {
			return store.NewError(op, store.ErrState, "a delivery of the event was claimed, buried or completed before", nil)
		}
		e.completed = max(e.completed, millis(now))
		for len(e.deliveries) > 0 {
			d := e.deliveries[0]
			d.slice.edits++
			db.complete(s, d, millis(now))
		}
		db.retain(e)
		return nil
	})
}

// DropPending deletes pending deliveries of a handler, the oldest first; see
// [store.Operator].
func (s *Store) DropPending(ctx context.Context, handler string, limit int, now time.Time) (int, error) {
	dropped := 0
	err := s.operate(ctx, "drop pending deliveries", func(op string) error {
		if limit < 1 {
			return store.NewError(op, store.ErrInvalidArgument, "the limit must be at least 1", nil)
		}
		h := s.db.handlers[handler]
		if h == nil {
			return nil
		}
		var drop []*delivery
		for d := range h.deliveries.all() {
			if len(drop) == limit {
				break
			}
			if d.state != dead && s.db.running[d] == nil {
				drop = append(drop, d)
			}
		}
		for _, d := range drop {
			d.slice.edits++
			s.db.complete(s, d, millis(now))
		}
		dropped = len(drop)
		return nil
	})
	return dropped, err
}

// operate runs an operation of operators in one step.
func (s *Store) operate(ctx context.Context, op string, f func(op string) error) error {
	if err := alive(ctx, op); err != nil {
		return err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	before := s.db.changes
	err := f(op)
	if s.db.changes != before {
		s.db.wake()
	}
	return err
}

// waiting returns a delivery that is pending and does not run.
func (db *database) waiting(op string, id store.DeliveryID) (*delivery, error) {
	d := db.find(id.EventID, id.Handler)
	switch {
	case d == nil:
		return nil, store.NewError(op, store.ErrNotFound, "", nil)
	case db.running[d] != nil:
		return nil, store.NewError(op, store.ErrRunning, "", nil)
	case d.state == dead:
		return nil, store.NewError(op, store.ErrState, "the delivery is dead", nil)
	}
	return d, nil
}

// misplaced is the error for a delivery in another state than the operation
// wants, which says so if it runs.
func (db *database) misplaced(op string, d *delivery, detail string) error {
	err := store.NewError(op, store.ErrState, detail, nil)
	if db.running[d] != nil {
		err.Also = store.ErrRunning
	}
	return err
}

// edit changes a delivery that a claim may just have read and not yet recorded,
// or one that comes before such a delivery in its key.
func (db *database) edit(by *Store, d *delivery, now int64, mutate func(d *delivery)) {
	d.slice.edits++
	db.change(by, d, now, mutate)
}
