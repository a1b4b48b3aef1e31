package sqlite

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

type operateSQL struct {
	findDelivery, requeue, buryPending, moveDue, skip, eventDeliveries, remove, keepRemoved, readyOf, parkedOf string
	recordHandler, allHandlers, retireHandler, pauseHandler                                                    string
}

func newOperateSQL(q func(string) string) operateSQL {
	return operateSQL{
		findDelivery: q(`SELECT d.event, d.handler, d.state, d.gen, d.lane, ifnull(d.key, '')
			FROM {p}events e CROSS JOIN {p}handlers h CROSS JOIN {p}deliveries d
			WHERE e.id = ?1 AND h.id = ?2 AND d.event = e.seq AND d.handler = h.ref`),
		requeue: q(`UPDATE {p}deliveries SET state = 0, due = ?3, attempts = 0, lost = 0, alone = 0, updated = ?3
			WHERE event = ?1 AND handler = ?2 AND state >= 2`),
		buryPending: q(`UPDATE {p}deliveries SET state = 3, error = ?3, updated = ?4
			WHERE event = ?1 AND handler = ?2 AND state < 2`),
		moveDue: q(`UPDATE {p}deliveries SET due = ?3, updated = ?4 WHERE event = ?1 AND handler = ?2 AND state < 2`),
		skip:    q(`UPDATE {p}deliveries SET state = 3, updated = ?3 WHERE event = ?1 AND handler = ?2 AND state = 2`),
		eventDeliveries: q(`SELECT event, handler, state, gen, lane, ifnull(key, '')
			FROM {p}deliveries WHERE event = (SELECT seq FROM {p}events WHERE id = ?1) ORDER BY handler`),
		remove: q(`DELETE FROM {p}deliveries WHERE event = ?1 AND handler = ?2`),
		keepRemoved: q(`INSERT INTO {p}history (event, handler, at, due, attempts, lost, error)
			SELECT event, handler, ?3, due, attempts, lost, error FROM {p}deliveries WHERE event = ?1 AND handler = ?2`),
		readyOf: q(`SELECT event, handler, state, gen, lane, ifnull(key, '')
			FROM {p}deliveries INDEXED BY {p}deliveries_ready
			WHERE handler = (SELECT ref FROM {p}handlers WHERE id = ?1) AND state = 0 ORDER BY lane, due, event`),
		parkedOf: q(`SELECT event, handler, state, gen, lane, key
			FROM {p}deliveries INDEXED BY {p}deliveries_open
			WHERE handler = (SELECT ref FROM {p}handlers WHERE id = ?1) AND key IS NOT NULL AND state < 3 AND state = 1`),
		recordHandler: q(`INSERT INTO {p}handlers (id, aliases, types, recorded) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (id) DO UPDATE SET aliases = excluded.aliases, types = excluded.types,
				recorded = excluded.recorded, retired = 0`),
		allHandlers: q(`SELECT h.id, ifnull(h.aliases, '[]'), ifnull(h.types, '[]'), h.paused, h.retired, h.recorded
			FROM {p}handlers h
			WHERE h.recorded IS NOT NULL
				OR EXISTS (SELECT 1 FROM {p}deliveries d INDEXED BY {p}deliveries_ready
					WHERE d.handler = h.ref AND d.state = 0)
				OR EXISTS (SELECT 1 FROM {p}deliveries d INDEXED BY {p}deliveries_open
					WHERE d.handler = h.ref AND d.key IS NOT NULL AND d.state < 3)
				OR h.ref IN (SELECT d.handler FROM {p}deliveries d INDEXED BY {p}deliveries_died WHERE d.state = 3)
			ORDER BY h.id`),
		retireHandler: q(`UPDATE {p}handlers SET retired = 1 WHERE id = ?1`),
		pauseHandler:  q(`UPDATE {p}handlers SET paused = ?2 WHERE id = ?1`),
	}
}

// stored is a delivery as operators' changes see it.
type stored struct {
	deliveryKey
	state int
	gen   int64
	lane  uint8
	key   string
}

func (d *stored) scan(scan func(...any) error) error {
	return scan(&d.event, &d.handler, &d.state, &d.gen, &d.lane, &d.key)
}

// find returns a delivery, and whether it runs.
func (x *session) find(ctx context.Context, op string, id store.DeliveryID) (d stored, runs bool, err error) {
	var found bool
	err = x.rows(ctx, x.s.sql.findDelivery, func(scan func(...any) error) (bool, error) {
		found = true
		return false, d.scan(scan)
	}, id.EventID, id.Handler)
	if err != nil {
		return d, false, err
	}
	if !found {
		return d, false, store.NewError(op, store.ErrNotFound, "", nil)
	}
	running, err := x.running(ctx)
	if err != nil {
		return d, false, err
	}
	return d, running.has(d.deliveryKey, d.gen), nil
}

// running has what is listed by a claim record, with the generation and the owner.
type running map[deliveryKey][]listed

func (r running) has(d deliveryKey, gen int64) bool {
	for _, l := range r[d] {
		if l.gen == gen {
			return true
		}
	}
	return false
}

func (x *session) running(ctx context.Context) (running, error) {
	all, err := x.claims(ctx, x.s.sql.claimsOfAll)
	if err != nil {
		return nil, err
	}
	r := make(running, len(all))
	for _, l := range all {
		d := deliveryKey{l.event, l.handler}
		r[d] = append(r[d], l)
	}
	return r, nil
}

// Requeue makes dead deliveries due again; see [store.Operator].
func (s *Store) Requeue(ctx context.Context, ids []store.DeliveryID, now time.Time) error {
	const op = "requeue deliveries"
	if len(ids) == 0 {
		return ended(ctx, op)
	}
	return s.write(ctx, op, func(ctx context.Context, x *session) error {
		list := make([]stored, len(ids))
		for i, id := range ids {
			d, runs, err := x.find(ctx, op, id)
			switch {
			case err != nil:
				return err
			case runs:
				return &store.Error{Op: op, Class: store.ErrState, Also: store.ErrRunning}
			case d.state < stateHeld:
				return store.NewError(op, store.ErrState, "the delivery is not dead", nil)
			}
			list[i] = d
		}
		for _, d := range list { // One that is listed twice is requeued once.
			if err := x.requeue(ctx, d, now); err != nil {
				return err
			}
		}
		return nil
	})
}

func (x *session) requeue(ctx context.Context, d stored, now time.Time) error {
	due := now.UnixMilli()
	x.onCommit(func() { x.s.hint(slice{d.handler, d.lane}, due) })
	_, err := x.exec(ctx, x.s.sql.requeue, d.event, d.handler, due)
	return err
}

// RequeueWhere requeues the oldest dead deliveries that a filter selects; see
// [store.Operator].
func (s *Store) RequeueWhere(ctx context.Context, f store.Filter, limit int, now time.Time) (int, error) {
	const op = "requeue deliveries"
	if f.Status != "" && f.Status != store.StatusDead {
		return 0, invalid(op, "only dead deliveries can be requeued")
	}
	if limit <= 0 {
		return 0, ended(ctx, op)
	}
	n := 0
	err := s.write(ctx, op, func(ctx context.Context, x *session) error {
		list, err := x.deadWhere(ctx, f, limit, now)
		if err != nil {
			return err
		}
		for _, d := range list {
			if err := x.requeue(ctx, d, now); err != nil {
				return err
			}
		}
		n = len(list)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// pending runs change on a delivery that is pending and does not run.
func (s *Store) pending(
	ctx context.Context, op string, id store.DeliveryID, change func(ctx context.Context, x *session, d stored) error,
) error {
	return s.write(ctx, op, func(ctx context.Context, x *session) error {
		d, runs, err := x.find(ctx, op, id)
		switch {
		case err != nil:
			return err
		case runs:
			return store.NewError(op, store.ErrRunning, "", nil)
		case d.state >= stateHeld:
			return store.NewError(op, store.ErrState, "the delivery is dead", nil)
		}
		return change(ctx, x, d)
	})
}

// BuryPending makes a pending delivery dead; see [store.Operator].
func (s *Store) BuryPending(ctx context.Context, id store.DeliveryID, reason string, now time.Time) error {
	return s.pending(ctx, "bury delivery", id, func(ctx context.Context, x *session, d stored) error {
		if _, err := x.exec(ctx, s.sql.buryPending, d.event, d.handler, orNull(reason), now.UnixMilli()); err != nil {
			return err
		}
		return x.unblockAfter(ctx, d)
	})
}

// ReschedulePending changes when a pending delivery is due; see [store.Operator].
func (s *Store) ReschedulePending(ctx context.Context, id store.DeliveryID, dueAt, now time.Time) error {
	return s.pending(ctx, "reschedule delivery", id, func(ctx context.Context, x *session, d stored) error {
		due := dueAt.UnixMilli()
		x.onCommit(func() { s.hint(slice{d.handler, d.lane}, due) })
		_, err := x.exec(ctx, s.sql.moveDue, d.event, d.handler, due, now.UnixMilli())
		return err
	})
}

// Skip lets a key pass a dead delivery that holds it; see [store.Operator].
func (s *Store) Skip(ctx context.Context, id store.DeliveryID, now time.Time) error {
	const op = "skip delivery"
	return s.write(ctx, op, func(ctx context.Context, x *session) error {
		d, runs, err := x.find(ctx, op, id)
		switch {
		case err != nil:
			return err
		case runs:
			return &store.Error{Op: op, Class: store.ErrState, Also: store.ErrRunning}
		case d.state != stateHeld:
			return store.NewError(op, store.ErrState, "the delivery holds no key", nil)
		}
		if _, err := x.exec(ctx, s.sql.skip, d.event, d.handler, now.UnixMilli()); err != nil {
			return err
		}
		return x.unblockAfter(ctx, d)
	})
}

func (x *session) unblockAfter(ctx context.Context, d stored) error {
	if d.key == "" {
		return nil
	}
	return x.unblock(ctx, d.handler, d.key)
}

// CancelEvent removes the deliveries of an event that nobody has claimed; see
// [store.Operator].
func (s *Store) CancelEvent(ctx context.Context, eventID string, now time.Time) error {
	const op = "cancel event"
	return s.write(ctx, op, func(ctx context.Context, x *session) error {
		var seq int64
		var key, handlers string
		found, err := x.row(ctx, s.sql.knownEvent, []any{&seq, &key, &handlers}, eventID)
		if err != nil {
			return err
		}
		if !found {
			return store.NewError(op, store.ErrNotFound, "", nil)
		}
		list, err := x.deliveries(ctx, s.sql.eventDeliveries, 0, eventID)
		if err != nil {
			return err
		}
		running, err := x.running(ctx)
		if err != nil {
			return err
		}
		had, err := parseNumbers(handlers)
		if err != nil {
			return err
		}
		claimed := len(list) < len(had) // One was claimed, and has completed.
		for _, d := range list {
			if running.has(d.deliveryKey, d.gen) {
				return store.NewError(op, store.ErrRunning, "", nil)
			}
			claimed = claimed || d.gen > 0 || d.state >= stateHeld
		}
		if claimed {
			return store.NewError(op, store.ErrState, "a delivery of the event was claimed before", nil)
		}
		return x.removeAll(ctx, list, now)
	})
}

// DropPending deletes pending deliveries of a handler; see [store.Operator].
func (s *Store) DropPending(ctx context.Context, handler string, limit int, now time.Time) (int, error) {
	const op = "drop pending deliveries"
	if limit <= 0 {
		return 0, ended(ctx, op)
	}
	n := 0
	err := s.write(ctx, op, func(ctx context.Context, x *session) error {
		running, err := x.running(ctx)
		if err != nil {
			return err
		}
		var list []stored
		for _, text := range []string{s.sql.readyOf, s.sql.parkedOf} {
			if len(list) == limit {
				break
			}
			err = x.rows(ctx, text, func(scan func(...any) error) (bool, error) {
				var d stored
				if err := d.scan(scan); err != nil {
					return false, err
				}
				if !running.has(d.deliveryKey, d.gen) {
					list = append(list, d)
				}
				return len(list) < limit, nil
			}, handler)
			if err != nil {
				return err
			}
		}
		n = len(list)
		return x.removeAll(ctx, list, now)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// deliveries reads deliveries, up to a limit if that is not 0.
func (x *session) deliveries(ctx context.Context, text string, limit int, args ...any) (list []stored, err error) {
	err = x.rows(ctx, text, func(scan func(...any) error) (bool, error) {
		var d stored
		err := d.scan(scan)
		list = append(list, d)
		return limit == 0 || len(list) < limit, err
	}, args...)
	return list, err
}

// removeAll removes deliveries as if they had completed.
func (x *session) removeAll(ctx context.Context, list []stored, now time.Time) error {
	events := make([]int64, 0, len(list))
	for _, d := range list {
		if x.s.cfg.History {
			if _, err := x.exec(ctx, x.s.sql.keepRemoved, d.event, d.handler, now.UnixMilli()); err != nil {
				return err
			}
		}
		if _, err := x.exec(ctx, x.s.sql.remove, d.event, d.handler); err != nil {
			return err
		}
		events = append(events, d.event)
	}
	for _, d := range list {
		if err := x.unblockAfter(ctx, d); err != nil {
			return err
		}
	}
	return x.recordDone(ctx, events, now.UnixMilli())
}
