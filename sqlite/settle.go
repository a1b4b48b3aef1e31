package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type settleSQL struct {
	complete, keep, reschedule, release, bury, addCompletions, unpark string
}

func newSettleSQL(q func(string) string) settleSQL {
	const fence = ` WHERE event = ?1 AND handler = ?2 AND gen = ?3 AND state = 0`
	return settleSQL{
		complete: q(`DELETE FROM {p}deliveries` + fence),
		keep: q(`INSERT INTO {p}history (event, handler, at, due, attempts, lost, error)
			SELECT event, handler, ?4, due, attempts, lost, error FROM {p}deliveries` + fence),
		reschedule: q(`UPDATE {p}deliveries SET gen = gen + 1, attempts = attempts + 1, alone = 0, updated = ?4,
			due = ?5, error = ?6` + fence),
		release: q(`UPDATE {p}deliveries SET gen = gen + 1, alone = max(alone, ?6), updated = ?4, due = ifnull(?5, due)` + fence),
		bury: q(`UPDATE {p}deliveries SET gen = gen + 1, attempts = attempts + 1, alone = 0, updated = ?4,
			state = ?5, error = ?6` + fence),
		addCompletions: q(`INSERT INTO {p}completions (at, list) VALUES (?1, ?2)`),
		unpark:         q(`UPDATE {p}deliveries SET state = 0 WHERE event = ?1 AND handler = ?2 AND state = 1`),
	}
}

func keyOf(l store.Lease) deliveryKey { return deliveryKey{l.Ref[0], l.Ref[1]} }

func checkTokens(op string, leases []store.Lease) error {
	for _, l := range leases {
		if !l.Token.Valid() {
			return store.NewError(op, store.ErrInvalidToken, "", lane.ErrToken)
		}
	}
	return nil
}

// Settle ends claims in one transaction; see [store.Settler].
func (s *Store) Settle(
	ctx context.Context, owner string, list []store.Settlement, now time.Time,
) ([]bool, error) {
	const op = "settle deliveries"
	for _, e := range list {
		if !e.Lease.Token.Valid() {
			return nil, store.NewError(op, store.ErrInvalidToken, "", lane.ErrToken)
		}
		if e.Action < store.Complete || e.Action > store.Bury {
			return nil, invalid(op, "a settlement has no action")
		}
	}
	ok := make([]bool, len(list))
	w := s.known(owner)
	if w == nil || !w.any(list) {
		return ok, s.usable(ctx, op)
	}
	err := s.write(ctx, op, func(ctx context.Context, x *session) error {
		e, err := x.ending(ctx, w, now)
		if err != nil || e == nil {
			return err
		}
		for i := range list {
			if ok[i], err = e.settle(ctx, &list[i]); err != nil {
				return err
			}
		}
		return e.finish(ctx)
	})
	if err != nil {
		return nil, err
	}
	return ok, nil
}

// any reports whether the worker runs any of them, as far as it knows.
func (w *worker) any(list []store.Settlement) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		if w.holds(list[i].Lease) != nil {
			return true
		}
	}
	return false
}

// ending ends claims of one owner inside a transaction.
//
// The fence has three parts. The owner's row exists: otherwise somebody took
// over from it, or it ended itself. The worker knows the lease: as long as the
// owner's row exists, only this instance takes its lanes and claim records away,
// so what it knows of them is what the database has. And the delivery itself
// is pending and has the token's generation, which each statement checks.
type ending struct {
	*session
	w     *worker
	now   int64
	owner int64
	over  []closed
	// ended has the same ones, to be found.
	ended map[deliveryKey]struct{}
	// done has the events of completed deliveries, keys the keys that moved on.
	done []int64
	keys map[orderKey]struct{}
}

type closed struct {
	d     deliveryKey
	token lane.Token
}

// ending is nil when the owner is no more.
func (x *session) ending(ctx context.Context, w *worker, now time.Time) (*ending, error) {
	w.mu.Lock()
	owner := w.owner
	w.mu.Unlock()
	var lease int64
	found, err := x.row(ctx, x.s.sql.ownLease, []any{&lease}, owner)
	if err != nil || !found {
		return nil, err
	}
	return &ending{
		session: x, w: w, now: now.UnixMilli(), owner: owner,
		ended: make(map[deliveryKey]struct{}), keys: make(map[orderKey]struct{}),
	}, nil
}

func (e *ending) settle(ctx context.Context, one *store.Settlement) (bool, error) {
	d, token := keyOf(one.Lease), one.Lease.Token
	e.w.mu.Lock()
	r := e.w.holds(one.Lease)
	known := e.w.owner == e.owner && r != nil
	e.w.mu.Unlock()
	if _, twice := e.ended[d]; twice || !known {
		return false, nil
	}
	n, err := e.apply(ctx, one, d, r.key)
	if err != nil {
		return false, err
	}
	// Not applied: somebody else ended it, or an earlier call whose outcome was
	// unknown. It is over in any case.
	e.over = append(e.over, closed{d, token})
	e.ended[d] = struct{}{}
	return n == 1, nil
}

func (e *ending) apply(ctx context.Context, one *store.Settlement, d deliveryKey, key string) (int64, error) {
	sql, gen := &e.s.sql.settleSQL, one.Lease.Token.Claims
	at := slice{d.handler, one.Lease.Token.Lane}
	switch one.Action {
	case store.Complete:
		return e.complete(ctx, d, gen, key)
	case store.Reschedule:
		due := one.DueAt.UnixMilli()
		e.onCommit(func() { e.s.hint(at, hintFrom(key, due)) })
		return e.exec(ctx, sql.reschedule, d.event, d.handler, gen, e.now, due, orNull(one.Error))
	case store.Release:
		var due any
		from := int64(0)
		if !one.DueAt.IsZero() {
			from = one.DueAt.UnixMilli()
			due = from
		}
		e.onCommit(func() { e.s.hint(at, hintFrom(key, from)) })
		return e.exec(ctx, sql.release, d.event, d.handler, gen, e.now, due, one.Alone)
	case store.Bury:
		state := stateDead
		if one.Hold && key != "" {
			state = stateHeld
		} else {
			e.moved(d.handler, key)
		}
		return e.exec(ctx, sql.bury, d.event, d.handler, gen, e.now, state, orNull(one.Error))
	default:
		return 0, invalid("settle deliveries", "a settlement has no action")
	}
}

// hintFrom returns from where a lane is to be read after one of its deliveries
// came back. With a key, an earlier one that waited for it may go first.
func hintFrom(key string, due int64) int64 {
	if key != "" {
		return 0
	}
	return due
}

// complete deletes the delivery, or moves it into the history.
func (e *ending) complete(ctx context.Context, d deliveryKey, gen int64, key string) (int64, error) {
	if e.s.cfg.History {
		if _, err := e.exec(ctx, e.s.sql.keep, d.event, d.handler, gen, e.now); err != nil {
			return 0, err
		}
	}
	n, err := e.exec(ctx, e.s.sql.complete, d.event, d.handler, gen)
	if n == 1 {
		e.done = append(e.done, d.event)
		e.moved(d.handler, key)
	}
	return n, err
}

// moved notes that a key has moved on.
func (e *ending) moved(ref int64, key string) {
	if key != "" {
		e.keys[orderKey{ref, key}] = struct{}{}
	}
}

// finish writes what follows from what ended.
func (e *ending) finish(ctx context.Context) error {
	e.settles = true
	if err := e.recordDone(ctx, e.done, e.now); err != nil {
		return err
	}
	for k := range e.keys {
		if err := e.unblock(ctx, k.handler, k.key); err != nil {
			return err
		}
	}
	claims, lanes := e.emptied()
	for _, number := range claims {
		if _, err := e.exec(ctx, e.s.sql.dropClaim, e.owner, number); err != nil {
			return err
		}
	}
	for _, at := range lanes {
		if _, err := e.exec(ctx, e.s.sql.freeLane, at.handler, at.lane, e.owner); err != nil {
			return err
		}
	}
	e.onCommit(func() {
		e.w.mu.Lock()
		for _, one := range e.over {
			e.w.remove(one.d, one.token)
			// Of several completions in one transaction of a caller none may
			// have been the last.
			e.w.doubt = e.w.doubt ||
				e.w.held[slice{one.d.handler, one.token.Lane}] == 0 && !slices.Contains(lanes, slice{one.d.handler, one.token.Lane})
		}
		e.w.mu.Unlock()
		// Other workers of this instance have left the lane alone.
		for _, at := range lanes {
			e.s.free(e.w, at)
		}
	})
	return nil
}

// recordDone notes completions for the retention of their events, one entry for
// each delivery.
func (x *session) recordDone(ctx context.Context, events []int64, now int64) error {
	if len(events) == 0 {
		return nil
	}
	_, err := x.exec(ctx, x.s.sql.addCompletions, now, numberList(events))
	return err
}

// emptied returns the claim records and lanes of which nothing runs any more.
func (e *ending) emptied() (claims []int64, lanes []slice) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	ofClaim, ofLane := make(map[int64]int), make(map[slice]int)
	for _, one := range e.over {
		r := e.w.running[one.d]
		if r == nil {
			continue
		}
		at := slice{one.d.handler, one.token.Lane}
		if ofClaim[r.claim]++; ofClaim[r.claim] == e.w.claims[r.claim] {
			claims = append(claims, r.claim)
		}
		if ofLane[at]++; ofLane[at] == e.w.held[at] {
			lanes = append(lanes, at)
		}
	}
	return claims, lanes
}

// CompleteTx completes the delivery inside the transaction; see
// [store.Settler].
func (s *Store) CompleteTx(ctx context.Context, tx store.Tx, owner string, l store.Lease, now time.Time) error {
	const op = "complete in transaction"
	if err := checkTokens(op, []store.Lease{l}); err != nil {
		return err
	}
	if err := ended(ctx, op); err != nil {
		return err
	}
	x, t, err := s.sessionOf(ctx, op, tx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	lost := store.NewError(op, store.ErrLeaseLost, "", nil)
	w := s.known(owner)
	if w == nil {
		return lost
	}
	done := false
	err = x.whole(still(ctx), t, func(ctx context.Context) error {
		e, err := x.ending(ctx, w, now)
		if err != nil || e == nil {
			return err
		}
		if done, err = e.settle(ctx, &store.Settlement{Lease: l, Action: store.Complete}); err != nil || !done {
			return err
		}
		return e.finish(ctx)
	})
	if err != nil {
		return s.translate(op, err)
	}
	if !done {
		return lost
	}
	if t.owner == nil {
		// Nobody tells when the caller commits: the next claim looks.
		w.mu.Lock()
		w.maybe[keyOf(l)] = struct{}{}
		w.mu.Unlock()
		s.changes.Add(1)
	}
	return nil
}
