package memstore

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// Settle ends claims in one step; see [store.Settler].
func (s *Store) Settle(
	ctx context.Context, owner string, list []store.Settlement, now time.Time,
) ([]bool, error) {
	const op = "settle deliveries"
	for _, one := range list {
		if !one.Lease.Token.Valid() {
			return nil, store.NewError(op, store.ErrInvalidToken, "", lane.ErrToken)
		}
		if one.Action < store.Complete || one.Action > store.Bury {
			return nil, store.NewError(op, store.ErrInvalidArgument, "unknown action", nil)
		}
	}
	if err := alive(ctx, op); err != nil {
		return nil, err
	}
	w := s.worker(owner)
	ok := s.settle(w.current(), list, millis(now))
	if err := s.step("settled", list); err != nil {
		return nil, lost(op, err)
	}
	// A lease that was lost has ended, too.
	for _, one := range list {
		w.settled(one.Lease)
	}
	return ok, nil
}

func (s *Store) settle(o *owner, list []store.Settlement, now int64) []bool {
	ok := make([]bool, len(list))
	db := s.db
	db.mu.Lock()
	defer db.mu.Unlock()
	before := db.changes
	for i, one := range list {
		d := db.fenced(s, o, one.Lease)
		if d == nil {
			continue
		}
		ok[i] = true
		db.unlist(d)
		db.end(s, d, one, now)
	}
	if db.changes != before {
		db.wake()
	}
	return ok
}

// end ends the claim of a delivery as the settlement says.
func (db *database) end(by *Store, d *delivery, one store.Settlement, now int64) {
	if one.Action == store.Complete {
		db.complete(by, d, now)
		return
	}
	db.change(by, d, now, func(d *delivery) {
		d.claims++
		switch one.Action {
		case store.Reschedule:
			d.attempts++
			d.due = millis(one.DueAt)
			d.failure = one.Error
			d.alone = false
		case store.Release:
			if !one.DueAt.IsZero() {
				d.due = millis(one.DueAt)
			}
			d.alone = d.alone || one.Alone
		case store.Bury:
			d.attempts++
			d.state = dead
			d.died = now
			d.hold = one.Hold && d.key() != ""
			d.failure = one.Error
			d.alone = false
		case store.Complete:
		}
	})
}

// Extend renews the owner's lease; see [store.Claimer]. When some of the leases
// hold and others don't, those that don't are reported and stay lost.
func (s *Store) Extend(
	ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration,
) ([]bool, error) {
	const op = "extend leases"
	for _, l := range leases {
		if !l.Token.Valid() {
			return nil, store.NewError(op, store.ErrInvalidToken, "", lane.ErrToken)
		}
	}
	if lease <= 0 {
		return nil, store.NewError(op, store.ErrInvalidArgument, "the lease must be longer than 0", nil)
	}
	if err := alive(ctx, op); err != nil {
		return nil, err
	}
	w := s.worker(owner)
	holds := s.extend(w.current(), leases, expiry(millis(now), lease))
	if err := s.step("extended", leases); err != nil {
		return nil, lost(op, err)
	}
	for i, l := range leases {
		if !holds[i] {
			w.settled(l)
		}
	}
	return holds, nil
}

func (s *Store) extend(o *owner, leases []store.Lease, until int64) []bool {
	holds := make([]bool, len(leases))
	db := s.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.registered(o) {
		return holds
	}
	o.until = max(o.until, until)
	for i, l := range leases {
		holds[i] = db.fenced(s, o, l) != nil
	}
	return holds
}

// Relinquish ends the owner; see [store.Claimer]. It waits for a claim of the
// owner that is under way.
func (s *Store) Relinquish(ctx context.Context, owner string, now time.Time) error {
	const op = "relinquish lanes"
	w := s.worker(owner)
	if err := w.enter(ctx, op); err != nil {
		return err
	}
	defer w.leave()
	o := w.current()
	w.become(nil)
	db := s.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.registered(o) {
		return nil
	}
	db.release(s, o, millis(now), func(*delivery, int64) bool { return false })
	db.dismiss(o)
	db.wake()
	return nil
}
