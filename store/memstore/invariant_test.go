package memstore

import (
	"errors"
	"fmt"

	"github.com/relaybus-go/relaybus/store"
)

// check returns an error when something is not true that must always be.
func (w *world) check(step string) error {
	for id := range w.published {
		_, exists := w.last.rows[id]
		switch n := w.completed[id]; {
		case exists && n > 0:
			return fmt.Errorf("%s: I3: %v is back after it was completed", step, id)
		case !exists && n == 0:
			return fmt.Errorf("%s: I1: %v is gone", step, id)
		case n > 1:
			return fmt.Errorf("%s: I3: %v was completed %d times", step, id, n)
		}
		if w.effects[id] > 1 {
			return fmt.Errorf("%s: I3: %v took effect %d times", step, id, w.effects[id])
		}
	}
	for id := range w.last.rows {
		if _, ok := w.published[id]; !ok {
			return fmt.Errorf("%s: I2: %v exists, but was never committed", step, id)
		}
	}
	running := make(map[string]store.DeliveryID)
	for id, r := range w.last.rows {
		key := w.published[id]
		if r.owner == 0 || key == "" {
			continue
		}
		if other, ok := running[key]; ok {
			return fmt.Errorf("%s: I4: %v and %v run at once", step, id, other)
		}
		running[key] = id
	}
	if err := w.db.consistent(); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return w.checkEpochs(step)
}

// checkEpochs checks that the epoch of a lane grows with each change of hands.
func (w *world) checkEpochs(step string) error {
	for _, h := range w.db.handlers {
		for _, s := range h.slices {
			if s == nil {
				continue
			}
			// The epoch and the owner of the last state, as one number.
			last, now := w.epochs[s.number], s.epoch<<16|ownerNumber(s.owner)
			if now>>16 < last>>16 || (s.owner != nil && now != last && now>>16 == last>>16) {
				return fmt.Errorf("%s: lane %d of %s went from %d to %d without a new epoch", step, s.lane, h.id, last, now)
			}
			w.epochs[s.number] = now
		}
	}
	return nil
}

// consistent checks the indexes of the database against its deliveries.
func (db *database) consistent() error {
	ready, unfinished, count := 0, 0, 0
	for _, e := range db.events {
		for _, d := range e.deliveries {
			count++
			if err := db.placed(d); err != nil {
				return fmt.Errorf("%v: %w", d.id(), err)
			}
			if d.state == pending {
				ready++
			}
			if d.key() != "" && d.unfinished() {
				unfinished++
			}
		}
	}
	for _, h := range db.handlers {
		count -= h.deliveries.len()
		for _, list := range h.keys {
			unfinished -= list.len()
		}
		for _, s := range h.slices {
			if s == nil {
				continue
			}
			ready -= s.ready.len()
			if _, ok := s.owner.slicesOf()[s]; s.owner != nil && (!ok || !db.registered(s.owner)) {
				return fmt.Errorf("lane %d of %s belongs to an owner that does not know it", s.lane, h.id)
			}
		}
	}
	if ready != 0 || unfinished != 0 || count != 0 {
		return fmt.Errorf("indexes have %d ready, %d unfinished and %d deliveries too few", ready, unfinished, count)
	}
	listed := 0
	for _, o := range db.owners {
		listed += len(o.listed)
		for s := range o.slices {
			if s.owner != o {
				return fmt.Errorf("owner %d thinks that it has lane %d of %s", o.number, s.lane, s.handler.id)
			}
		}
		for d, generation := range o.listed {
			if db.find(d.event.data.ID, d.handler.id) != d || d.claims != generation || d.slice.owner != o {
				return fmt.Errorf("owner %d lists %v, which is not its own", o.number, d.id())
			}
		}
	}
	if listed != len(db.running) {
		return fmt.Errorf("owners list %d deliveries, %d run", listed, len(db.running))
	}
	return nil
}

func (o *owner) slicesOf() map[*slice]struct{} {
	if o == nil {
		return nil
	}
	return o.slices
}

// placed checks where the indexes have one delivery.
func (db *database) placed(d *delivery) error {
	find := func(list *sorted[*delivery]) bool {
		at := list.find(d)
		found, ok := at.value()
		return ok && found == d
	}
	if (d.state == pending) != find(d.slice.ready) {
		return fmt.Errorf("state %d, and what claims read says otherwise", d.state)
	}
	if (d.state == dead && !d.hold) != find(db.dead) {
		return fmt.Errorf("state %d, and the index of dead ones says otherwise", d.state)
	}
	if key := d.key(); key != "" {
		list := d.handler.keys[key]
		if d.unfinished() != (list != nil && find(list)) {
			return fmt.Errorf("state %d, and its key says otherwise", d.state)
		}
		if list != nil && d.state == parked {
			if head, _ := list.first(); head == d {
				return errors.New("it is first of its key and parked")
			}
		}
	}
	return nil
}
