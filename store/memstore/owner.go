package memstore

import (
	"github.com/relaybus-go/relaybus/store"
)

// owner is the lease of a worker instance in the database, with its claim
// records.
type owner struct {
	number int64
	name   string
	until  int64
	// listed has what it claimed, with the claim generation of each.
	listed map[*delivery]int64
	slices map[*slice]struct{}
}

// registered says that nobody has taken over from the owner.
func (db *database) registered(o *owner) bool { return o != nil && db.owners[o.number] == o }

// live says that the owner may take and claim at now.
func (db *database) live(o *owner, now int64) bool { return db.registered(o) && o.until > now }

// register returns the owner with a lease until at least until. An owner that
// is gone comes back as a new one.
func (db *database) register(o *owner, name string, until int64) *owner {
	if !db.registered(o) {
		db.ownerNumber++
		o = &owner{
			number: db.ownerNumber,
			name:   name,
			listed: make(map[*delivery]int64),
			slices: make(map[*slice]struct{}),
		}
		db.owners[o.number] = o
	}
	o.until = max(o.until, until)
	return o
}

// reap takes over from every other owner whose lease has expired.
func (db *database) reap(by *Store, self *owner, now int64) {
	for _, o := range db.owners {
		if o == self || o.until > now {
			continue
		}
		for d, generation := range o.listed {
			if d.claims == generation {
				d.attempts++
				d.lost++
				d.updated = now
				if !by.hooks.keepGeneration {
					d.claims++
				}
				db.hint(by, d)
			}
			db.unlist(d)
		}
		for s := range o.slices {
			s.epoch++
		}
		db.dismiss(o)
	}
}

// dismiss ends the owner and frees its lanes. It must list nothing any more.
func (db *database) dismiss(o *owner) {
	for s := range o.slices {
		s.owner = nil
	}
	clear(o.slices)
	delete(db.owners, o.number)
}

// release ends the claims of the owner that keep does not want, without a
// charge.
func (db *database) release(by *Store, o *owner, now int64, keep func(d *delivery, generation int64) bool) {
	for d, generation := range o.listed {
		if keep(d, generation) {
			continue
		}
		db.unlist(d)
		db.change(by, d, now, func(d *delivery) { d.claims++ })
	}
}

// list records a claim of the delivery.
func (db *database) list(o *owner, d *delivery, generation int64) {
	o.listed[d] = generation
	db.running[d] = o
	if key := d.key(); key != "" {
		d.handler.busy[key]++
	}
}

// unlist ends the record of a claim.
func (db *database) unlist(d *delivery) {
	o := db.running[d]
	if o == nil {
		return
	}
	delete(o.listed, d)
	delete(db.running, d)
	if key := d.key(); key != "" {
		if d.handler.busy[key]--; d.handler.busy[key] == 0 {
			delete(d.handler.busy, key)
		}
	}
}

// fenced returns the delivery if the lease is its current claim by the owner,
// and nil otherwise.
func (db *database) fenced(by *Store, o *owner, l store.Lease) *delivery {
	if !db.registered(o) {
		return nil
	}
	d := db.find(l.EventID, l.Handler)
	if d == nil || d.state != pending {
		return nil
	}
	generation, listed := o.listed[d]
	if !listed {
		return nil
	}
	current := generation == l.Token.Claims && d.claims == l.Token.Claims
	if !current && !by.hooks.ignoreGeneration {
		return nil
	}
	s := d.slice
	if s.owner != o || s.lane != l.Token.Lane || s.epoch != l.Token.Epoch {
		return nil
	}
	return d
}
