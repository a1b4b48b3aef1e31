package memstore

import (
	"slices"
)

// place adds the delivery to the indexes of its state.
func (db *database) place(by *Store, d *delivery) {
	switch d.state {
	case pending:
		d.slice.ready.insert(d)
		db.hint(by, d)
	case dead:
		if !d.hold {
			db.dead.insert(d)
		}
	case parked:
	}
	if key := d.key(); key != "" && d.unfinished() {
		list := d.handler.keys[key]
		if list == nil {
			list = newSorted(bySequence)
			d.handler.keys[key] = list
		}
		list.insert(d)
	}
}

// displace removes the delivery from the indexes of its state.
func (db *database) displace(d *delivery) {
	switch d.state {
	case pending:
		d.slice.ready.remove(d)
	case dead:
		if !d.hold {
			db.dead.remove(d)
		}
	case parked:
	}
	if key := d.key(); key != "" && d.unfinished() {
		list := d.handler.keys[key]
		list.remove(d)
		if list.len() == 0 {
			delete(d.handler.keys, key)
		}
	}
}

// change changes a delivery, and whatever follows from it for its key.
func (db *database) change(by *Store, d *delivery, now int64, mutate func(d *delivery)) {
	db.displace(d)
	mutate(d)
	d.updated = now
	db.place(by, d)
	db.unblock(by, d)
}

// remove deletes a delivery.
func (db *database) remove(by *Store, d *delivery) {
	db.displace(d)
	d.handler.deliveries.remove(d)
	e := d.event
	if at, ok := slices.BinarySearchFunc(e.deliveries, d.handler.id, byHandler); ok {
		e.deliveries = slices.Delete(e.deliveries, at, at+1)
	}
	db.retain(e)
	db.unblock(by, d)
}

// unblock makes the first unfinished delivery of the key ready if it is
// parked. Every change of a keyed delivery ends with it, so that the first one
// of a key is never parked.
func (db *database) unblock(by *Store, d *delivery) {
	list := d.handler.keys[d.key()]
	if list == nil {
		return
	}
	if head, _ := list.first(); head.state == parked {
		head.state = pending
		head.slice.ready.insert(head)
		db.hint(by, head)
	}
}

// hint says that the delivery may have become claimable.
func (db *database) hint(by *Store, d *delivery) {
	db.changes++
	by.own++
	by.bounds.Hint(d.slice.number, bound(d.due))
}

// wake signals everybody who waits for changes.
func (db *database) wake() {
	for waker := range db.wakers {
		select {
		case waker <- struct{}{}:
		default:
		}
	}
}

// find returns a delivery that is not completed, or nil.
func (db *database) find(eventID, handler string) *delivery {
	e := db.events[eventID]
	if e == nil {
		return nil
	}
	at, ok := slices.BinarySearchFunc(e.deliveries, handler, byHandler)
	if !ok {
		return nil
	}
	return e.deliveries[at]
}

// complete removes the delivery and accounts it as completed.
func (db *database) complete(by *Store, d *delivery, now int64) {
	e := d.event
	e.completed = max(e.completed, now)
	if by.config.History {
		db.number++
		c := &completion{
			number:   db.number,
			event:    e,
			handler:  d.handler.id,
			attempts: d.attempts,
			lost:     d.lost,
			due:      d.due,
			at:       now,
			failure:  d.failure,
		}
		e.history = append(e.history, c)
		db.history.insert(c)
	}
	db.remove(by, d)
}

// retain keeps the index of events without deliveries right after a change.
func (db *database) retain(e *event) {
	if e.retained {
		db.retained.remove(e)
		e.retained = false
	}
	if len(e.deliveries) > 0 {
		return
	}
	switch {
	case e.completed != ever:
		e.since = e.completed
	case len(e.had) == 0:
		e.since = e.created
	default:
		e.since = ever
	}
	e.retained = true
	db.retained.insert(e)
}
