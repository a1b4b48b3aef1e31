package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

type operateSQL struct {
	findDelivery, findDeliveries, holders, lockLanes, claimsOfMany, requeue, buryPending, moveDue, skip, eventDeliveries string
	remove, removeKeeping, readyOf, knownEvent, recordHandler, allHandlers, retireHandler, pauseHandler                  string
}

func newOperateSQL(c Config) operateSQL {
	const columns = `SELECT d.event, d.handler, d.state, d.gen, d.lane, coalesce(d.key, ''), d.due FROM `
	const listed = ` WHERE d.event = ANY($1::bigint[])
		AND CASE WHEN true THEN (d.event, d.handler) IN (SELECT * FROM unnest($1::bigint[], $2::integer[])) END`
	const gone = `WITH d AS (DELETE FROM {t:deliveries} d` + listed + ` RETURNING d.*), done AS (INSERT INTO {t:completions} (at, events)
		SELECT $3::bigint, array_agg(event) FROM d HAVING count(*) > 0)`
	return operateSQL{
		findDelivery: c.named(columns + `{t:events} e, {t:handlers} h, {t:deliveries} d
			WHERE e.id = $1 AND h.id = $2 AND d.event = e.seq AND d.handler = h.ref`),
		findDeliveries: c.named(columns + `(SELECT DISTINCT * FROM unnest($1::text[], $2::text[])) AS w(id, handler)
			CROSS JOIN LATERAL (SELECT seq FROM {t:events} WHERE id = w.id LIMIT 1) e
			CROSS JOIN LATERAL (SELECT ref FROM {t:handlers} WHERE id = w.handler LIMIT 1) h
			CROSS JOIN LATERAL (SELECT * FROM {t:deliveries} d WHERE d.event = e.seq AND d.handler = h.ref LIMIT 1) d`),
		holders: c.named(`SELECT DISTINCT l.owner FROM unnest($1::integer[], $2::smallint[]) AS w(handler, lane)
			JOIN {t:lanes} l ON l.handler = w.handler AND l.lane = w.lane WHERE l.owner IS NOT NULL`),
		lockLanes: c.named(`SELECT coalesce(l.owner, 0) FROM {t:lanes} l
			WHERE (l.handler, l.lane) IN (SELECT * FROM unnest($1::integer[], $2::smallint[]))
			ORDER BY l.handler, l.lane FOR UPDATE`),
		claimsOfMany: c.named(`SELECT c.event, c.handler, c.gen FROM {t:claims} k
			CROSS JOIN LATERAL unnest(k.events, k.handlers, k.gens) AS c(event, handler, gen) WHERE k.owner = ANY($1::bigint[])`),
		requeue: c.named(`UPDATE {t:deliveries} d SET state = 0, due = $3, attempts = 0, lost = 0, alone = false, updated = $3` + listed + `
			AND CASE WHEN true THEN d.state >= 2 END RETURNING d.handler, d.lane, d.due`),
		buryPending: c.named(`UPDATE {t:deliveries} SET state = 3, error = nullif($3::text, ''), updated = $4
			WHERE event = $1 AND handler = $2 AND state + 0 < 2`),
		moveDue:         c.named(`UPDATE {t:deliveries} SET due = $3, updated = $4 WHERE event = $1 AND handler = $2 AND state + 0 < 2`),
		skip:            c.named(`UPDATE {t:deliveries} SET state = 3, updated = $3 WHERE event = $1 AND handler = $2 AND state + 0 = 2`),
		eventDeliveries: c.named(columns + `{t:deliveries} d WHERE d.event = $1 ORDER BY d.handler`),
		remove:          c.named(gone + ` SELECT count(*) FROM d`),
		removeKeeping: c.named(gone + `, kept AS (INSERT INTO {t:history} (event, handler, at, due, attempts, lost, error)
			SELECT event, handler, $3::bigint, due, attempts, lost, error FROM d) SELECT count(*) FROM d`),
		readyOf:       c.named(columns + `{t:deliveries} d WHERE d.handler = $1 AND d.state < 2 ORDER BY d.event, d.handler LIMIT $2 FOR UPDATE`),
		knownEvent:    c.named(`SELECT seq, cardinality(handlers) FROM {t:events} WHERE id = $1 FOR NO KEY UPDATE`),
		recordHandler: c.named(`UPDATE {t:handlers} SET aliases = $2, types = $3, recorded = $4, retired = false WHERE id = $1`),
		allHandlers: c.named(`SELECT h.id, h.aliases, h.types, h.paused, h.retired, h.recorded FROM {t:handlers} h
			WHERE h.recorded IS NOT NULL
				OR (SELECT true FROM {t:deliveries} d WHERE d.handler = h.ref AND d.state = 0
					ORDER BY d.lane, d.due LIMIT 1)
				OR (SELECT true FROM {t:deliveries} d WHERE d.handler = h.ref AND d.key IS NOT NULL AND d.state < 3
					ORDER BY d.key, d.event LIMIT 1)
				OR (SELECT true FROM {t:deliveries} d WHERE d.handler = h.ref AND d.state = 3
					ORDER BY d.updated, d.event LIMIT 1)
			ORDER BY h.id`),
		retireHandler: c.named(`UPDATE {t:handlers} SET retired = true WHERE id = $1`),
		pauseHandler:  c.named(`UPDATE {t:handlers} SET paused = $2 WHERE id = $1`),
	}
}

// stored is a delivery as operators' changes see it.
type stored struct {
	deliveryKey

	state int
	gen   int32
	lane  uint8
	key   string
	due   int64
}

func (d *stored) slice() slice { return slice{d.handler, d.lane} }

func (d *stored) scan(scan func(...any) error) error {
	return scan(&d.event, &d.handler, &d.state, &d.gen, &d.lane, &d.key, &d.due)
}

func (x *session) deliveries(ctx context.Context, text string, args ...any) (list []stored, err error) {
	err = x.rows(ctx, text, func(scan func(...any) error) (bool, error) {
		var d stored
		err := d.scan(scan)
		list = append(list, d)
		return true, err
	}, args...)
	return list, err
}

func (x *session) find(ctx context.Context, op string, id store.DeliveryID) (stored, error) {
	list, err := x.deliveries(ctx, x.s.sql.findDelivery, id.EventID, id.Handler)
	if err == nil && len(list) == 0 {
		err = store.NewError(op, store.ErrNotFound, "", nil)
	}
	if err != nil {
		return stored{}, err
	}
	return list[0], nil
}

// running has the generations under which deliveries run.
type running map[deliveryKey][]int32

func (r running) has(d deliveryKey, gen int32) bool { return slices.Contains(r[d], gen) }

// freeze keeps everybody from claiming in the slices until the end of the
// transaction, and returns what runs there. Locks are taken in the order in which
// claims take them: owners, then lanes.
func (x *session) freeze(ctx context.Context, list []slice) (running, error) {
	handlers, lanes := slicesOf(list)
	refs := slices.Compact(slices.Sorted(slices.Values(handlers)))
	if _, err := x.exec(ctx, x.s.sql.addLanes, refs); err != nil {
		return nil, err
	}
	var owners []int64
	for {
		found, err := x.numbers(ctx, x.s.sql.holders, handlers, lanes)
		if err != nil {
			return nil, err
		}
		owners = append(owners, found...)
		if len(owners) > 0 {
			if _, err := x.numbers(ctx, x.s.sql.lockOwners, owners); err != nil {
				return nil, err
			}
		}
		now, err := x.numbers(ctx, x.s.sql.lockLanes, handlers, lanes)
		if err != nil {
			return nil, err
		}
		changed := slices.ContainsFunc(now, func(id int64) bool { return id != 0 && !slices.Contains(owners, id) })
		if !changed {
			break
		}
		// A lane changed hands before it was locked.
	}
	runs := make(running)
	err := x.rows(ctx, x.s.sql.claimsOfMany, func(scan func(...any) error) (bool, error) {
		var d deliveryKey
		var gen int32
		err := scan(&d.event, &d.handler, &gen)
		runs[d] = append(runs[d], gen)
		return true, err
	}, owners)
	return runs, err
}

func (x *session) numbers(ctx context.Context, text string, args ...any) (list []int64, err error) {
	err = x.rows(ctx, text, func(scan func(...any) error) (bool, error) {
		var n int64
		err := scan(&n)
		list = append(list, n)
		return true, err
	}, args...)
	return list, err
}

// lockMoves keeps everybody else from ending deliveries with a key, of all ids of
// the handlers, until the end of the transaction.
func (x *session) lockMoves(ctx context.Context, refs ...int32) error {
	all, err := x.members(ctx, refs)
	if err != nil {
		return err
	}
	_, err = x.numbers(ctx, x.s.sql.lockMoves, x.s.moveClass(), all)
	return err
}

// haltTime is how long an operator waits for settlements under way while it keeps
// claims waiting.
const haltTime = `SET LOCAL lock_timeout = '1s'`

// halt freezes the slices, and then locks moves. Claims wait for the first,
// settlements of keyed deliveries for the second, so what may take long comes first:
// a claim that stands still must not keep the settlements of everybody. It can't end
// in a deadlock: who holds the lock on moves waits for no owner and no lane, as a
// settlement locks neither, and CompleteTx its owner only in a way that this one does
// not mind. What ends while it waits for moves has another generation than what the
// frozen claims list, or is gone, so readers look at deliveries afterwards.
func (x *session) halt(ctx context.Context, list []slice) (running, error) {
	runs, err := x.freeze(ctx, list)
	if err != nil {
		return nil, err
	}
	if _, err := x.exec(ctx, haltTime); err != nil {
		return nil, err
	}
	refs, _ := slicesOf(list)
	return runs, x.lockMoves(ctx, refs...)
}

// Requeue makes dead deliveries due again; see [store.Operator]. It costs the same
// number of statements however many there are.
func (s *Store) Requeue(ctx context.Context, ids []store.DeliveryID, now time.Time) error {
	const op = "requeue deliveries"
	if len(ids) == 0 {
		return s.usable(ctx, op)
	}
	different := make(map[store.DeliveryID]struct{}, len(ids))
	events, handlers := make([]string, 0, len(ids)), make([]string, 0, len(ids))
	for _, id := range ids {
		different[id] = struct{}{}
		events, handlers = append(events, id.EventID), append(handlers, id.Handler)
	}
	return s.change(ctx, op, func(ctx context.Context, x *session) error {
		list, err := x.deliveries(ctx, s.sql.findDeliveries, events, handlers)
		if err != nil {
			return err
		}
		if len(list) < len(different) {
			return store.NewError(op, store.ErrNotFound, "", nil)
		}
		for i := range list {
			if list[i].state < stateHeld {
				return x.wrongState(ctx, op, list[i], "the delivery is not dead")
			}
		}
		n, err := x.requeue(ctx, list, now)
		if err == nil && n < len(list) {
			err = store.NewError(op, store.ErrState, "somebody else has changed a delivery meanwhile", nil)
		}
		return err
	})
}

// wrongState is the error for a delivery that is in another state than it has to be.
func (x *session) wrongState(ctx context.Context, op string, d stored, detail string) error {
	runs, err := x.freeze(ctx, []slice{d.slice()})
	if err != nil {
		return err
	}
	if runs.has(d.deliveryKey, d.gen) {
		return &store.Error{Op: op, Class: store.ErrState, Also: store.ErrRunning}
	}
	return store.NewError(op, store.ErrState, detail, nil)
}

// requeue returns how many of the deliveries were still dead.
func (x *session) requeue(ctx context.Context, list []stored, now time.Time) (n int, err error) {
	events, handlers := numbersOf(list)
	err = x.rows(ctx, x.s.sql.requeue, func(scan func(...any) error) (bool, error) {
		n++
		return x.hinted(scan)
	}, events, handlers, now.UnixMilli())
	return n, err
}

func numbersOf(list []stored) (events []int64, handlers []int32) {
	for i := range list {
		events, handlers = append(events, list[i].event), append(handlers, list[i].handler)
	}
	return events, handlers
}

// RequeueWhere requeues the oldest dead deliveries that a filter selects; see
// [store.Operator].
func (s *Store) RequeueWhere(ctx context.Context, f store.Filter, limit int, now time.Time) (int, error) {
	const op = "requeue deliveries"
	if f.Status != "" && f.Status != store.StatusDead {
		return 0, invalid(op, "only dead deliveries can be requeued")
	}
	if err := checkFilter(op, f); err != nil {
		return 0, err
	}
	if limit <= 0 {
		return 0, s.usable(ctx, op)
	}
	n := 0
	err := s.change(ctx, op, func(ctx context.Context, x *session) error {
		highest := stateDead
		if f.HoldsKey {
			highest = stateHeld
		}
		n = 0
		// What others have changed meanwhile does not count, and the next ones may.
		for n < limit {
			list, err := x.deliveries(ctx, s.sql.listDead, append(filterArgs(f), highest, now.UnixMilli(), limit-n)...)
			if err != nil || len(list) == 0 {
				return err
			}
			changed, err := x.requeue(ctx, list, now)
			n += changed
			if err != nil || changed == len(list) {
				return err
			}
		}
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
	return s.change(ctx, op, func(ctx context.Context, x *session) error {
		d, err := x.find(ctx, op, id)
		if err != nil {
			return err
		}
		runs, err := x.halt(ctx, []slice{d.slice()})
		if err != nil {
			return err
		}
		if d, err = x.find(ctx, op, id); err != nil { // as it is now that nobody claims it
			return err
		}
		switch {
		case runs.has(d.deliveryKey, d.gen) && d.state < stateHeld:
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
		if _, err := x.exec(ctx, s.sql.buryPending, d.event, d.handler, reason, now.UnixMilli()); err != nil {
			return err
		}
		return x.unblock(ctx, []stored{d})
	})
}

// ReschedulePending changes when a pending delivery is due; see [store.Operator].
func (s *Store) ReschedulePending(ctx context.Context, id store.DeliveryID, dueAt, now time.Time) error {
	return s.pending(ctx, "reschedule delivery", id, func(ctx context.Context, x *session, d stored) error {
		due := dueAt.UnixMilli()
		x.onCommit(func() { s.hint(d.slice(), due) })
		_, err := x.exec(ctx, s.sql.moveDue, d.event, d.handler, due, now.UnixMilli())
		return err
	})
}

// Skip lets a key pass a dead delivery that holds it; see [store.Operator].
func (s *Store) Skip(ctx context.Context, id store.DeliveryID, now time.Time) error {
	const op = "skip delivery"
	return s.change(ctx, op, func(ctx context.Context, x *session) error {
		d, err := x.find(ctx, op, id)
		if err != nil {
			return err
		}
		const free = "the delivery holds no key"
		if d.state != stateHeld {
			return x.wrongState(ctx, op, d, free)
		}
		// Nobody claims a dead delivery, so there is nothing to freeze.
		if err := x.lockMoves(ctx, d.handler); err != nil {
			return err
		}
		n, err := x.exec(ctx, s.sql.skip, d.event, d.handler, now.UnixMilli())
		if err == nil && n == 0 {
			err = store.NewError(op, store.ErrState, free, nil)
		}
		if err != nil {
			return err
		}
		return x.unblock(ctx, []stored{d})
	})
}

// unblock brings back what the keys of the deliveries have parked.
func (x *session) unblock(ctx context.Context, list []stored) error {
	moved := make(map[orderKey]struct{})
	for _, d := range list {
		if d.key != "" {
			moved[orderKey{d.handler, d.key}] = struct{}{}
		}
	}
	if len(moved) == 0 {
		return nil
	}
	refs, keys := keysOf(moved)
	return x.rows(ctx, x.s.sql.unblock, x.hinted, refs, keys)
}

// CancelEvent removes the deliveries of an event that nobody has claimed; see
// [store.Operator].
func (s *Store) CancelEvent(ctx context.Context, eventID string, now time.Time) error {
	const op = "cancel event"
	return s.change(ctx, op, func(ctx context.Context, x *session) error {
		var seq int64
		var had int
		found, err := x.row(ctx, s.sql.knownEvent, []any{&seq, &had}, eventID)
		if err != nil {
			return err
		}
		if !found {
			return store.NewError(op, store.ErrNotFound, "", nil)
		}
		list, err := x.deliveries(ctx, s.sql.eventDeliveries, seq)
		if err != nil || len(list) == 0 && had == 0 {
			return err
		}
		at := make([]slice, len(list))
		for i := range list {
			at[i] = list[i].slice()
		}
		runs, err := x.halt(ctx, at)
		if err != nil {
			return err
		}
		if list, err = x.deliveries(ctx, s.sql.eventDeliveries, seq); err != nil {
			return err
		}
		claimed := len(list) < had // One was claimed, and has completed.
		for _, d := range list {
			if runs.has(d.deliveryKey, d.gen) {
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
		return 0, s.usable(ctx, op)
	}
	n := 0
	err := s.change(ctx, op, func(ctx context.Context, x *session) error {
		refs, err := x.findRefs(ctx, []string{handler})
		ref, ok := refs[handler]
		if err != nil || !ok {
			return err
		}
		all := make([]slice, 256)
		for i := range all {
			all[i] = slice{ref, uint8(i)}
		}
		runs, err := x.halt(ctx, all)
		if err != nil {
			return err
		}
		list, err := x.deliveries(ctx, s.sql.readyOf, ref, min(limit, 1<<30)+len(runs))
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(d stored) bool { return runs.has(d.deliveryKey, d.gen) })
		list = list[:min(len(list), limit)]
		n = len(list)
		return x.removeAll(ctx, list, now)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// removeAll removes deliveries as if they had completed.
func (x *session) removeAll(ctx context.Context, list []stored, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	text := x.s.sql.remove
	if x.s.cfg.History {
		text = x.s.sql.removeKeeping
	}
	events, handlers := numbersOf(list)
	if _, err := x.numbers(ctx, text, events, handlers, now.UnixMilli()); err != nil {
		return err
	}
	return x.unblock(ctx, list)
}
