package sqlite

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type ownerSQL struct {
	expiredOwners, ownLease, addOwner, renewOwner, dropOwner      string
	claimsOf, dropClaim, dropClaims, lanesOf, freeLane, freeLanes string
	chargeLost, giveBack, generation                              string
}

func newOwnerSQL(q func(string) string) ownerSQL {
	return ownerSQL{
		expiredOwners: q(`SELECT id FROM {p}owners INDEXED BY {p}owners_lease
			WHERE lease <= ?1 AND id <> ?2 ORDER BY lease`),
		ownLease:   q(`SELECT lease FROM {p}owners WHERE id = ?1`),
		addOwner:   q(`INSERT INTO {p}owners (id, name, lease) VALUES (?1, ?2, ?3)`),
		renewOwner: q(`UPDATE {p}owners SET lease = max(lease, ?2) WHERE id = ?1`),
		dropOwner:  q(`DELETE FROM {p}owners WHERE id = ?1`),
		claimsOf:   q(`SELECT n, list FROM {p}claims WHERE owner = ?1`),
		dropClaim:  q(`DELETE FROM {p}claims WHERE owner = ?1 AND n = ?2`),
		dropClaims: q(`DELETE FROM {p}claims WHERE owner = ?1`),
		lanesOf:    q(`SELECT handler, lane FROM {p}lanes WHERE owner = ?1`),
		freeLane:   q(`UPDATE {p}lanes SET owner = 0 WHERE handler = ?1 AND lane = ?2 AND owner = ?3`),
		freeLanes:  q(`UPDATE {p}lanes SET owner = 0, epoch = epoch + 1 WHERE owner = ?1`),
		chargeLost: q(`UPDATE {p}deliveries SET attempts = attempts + 1, lost = lost + 1, gen = gen + 1, updated = ?4
			WHERE event = ?1 AND handler = ?2 AND gen = ?3 AND state = 0`),
		giveBack: q(`UPDATE {p}deliveries SET gen = gen + 1, updated = ?4
			WHERE event = ?1 AND handler = ?2 AND gen = ?3 AND state = 0`),
		generation: q(`SELECT gen FROM {p}deliveries WHERE event = ?1 AND handler = ?2 AND state = 0`),
	}
}

// reap takes over from owners whose lease has expired: everything that they
// ran is charged one attempt, exactly once, as their claims go with it.
func (c *claiming) reap(ctx context.Context, x *session) error {
	var dead []int64
	err := x.rows(ctx, c.s.sql.expiredOwners, func(scan func(...any) error) (bool, error) {
		var id int64
		err := scan(&id)
		dead = append(dead, id)
		return true, err
	}, c.now, c.owner())
	if err != nil {
		return err
	}
	for _, id := range dead {
		if err := x.dismiss(ctx, id, c.s.sql.chargeLost, c.now); err != nil {
			return err
		}
		c.s.crash("reaped an owner")
	}
	if len(dead) > 0 {
		c.dropKnown()
	}
	return nil
}

// dismiss ends an owner. The statement says what becomes of what it runs.
func (x *session) dismiss(ctx context.Context, owner int64, each string, now int64) error {
	list, err := x.claims(ctx, x.s.sql.claimsOf, owner)
	if err != nil {
		return err
	}
	for _, l := range list {
		if _, err := x.exec(ctx, each, l.event, l.handler, l.gen, now); err != nil {
			return err
		}
	}
	x.onCommit(func() { x.s.changes.Add(1) })
	for _, text := range []string{x.s.sql.dropClaims, x.s.sql.freeLanes, x.s.sql.dropOwner} {
		if _, err := x.exec(ctx, text, owner); err != nil {
			return err
		}
	}
	return nil
}

func (c *claiming) owner() int64 { return c.w.id() }

// id returns the owner's number, or 0.
func (w *worker) id() int64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owner
}

// register makes sure that the owner exists, and renews its lease when a third
// of it has passed. An owner that somebody took over from starts anew.
func (c *claiming) register(ctx context.Context, x *session) error {
	owner := c.owner()
	var lease int64
	found, err := x.row(ctx, c.s.sql.ownLease, []any{&lease}, owner)
	if err != nil {
		return err
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if !found {
		id, err := newOwnerID()
		if err != nil {
			return err
		}
		c.w.forget()
		c.w.owner, c.w.lease = id, c.now+c.lease
		_, err = x.exec(ctx, c.s.sql.addOwner, id, c.w.name, c.w.lease)
		return err
	}
	c.w.lease = lease
	until := lane.LeaseUntil(c.w.lease, c.now, c.lease)
	if until <= lease {
		return nil
	}
	x.onCommit(func() {
		c.w.mu.Lock()
		c.w.lease = until
		c.w.mu.Unlock()
	})
	_, err = x.exec(ctx, c.s.sql.renewOwner, owner, until)
	return err
}

func newOwnerID() (int64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:])>>2) + 1, nil // 62 bits fit
}

// reconcile makes the database list for the owner exactly what this instance
// has handed out and not seen settled. The rest is given back without a charge.
func (c *claiming) reconcile(ctx context.Context, x *session) error {
	c.w.mu.Lock()
	maybe := make([]deliveryKey, 0, len(c.w.maybe))
	for d := range c.w.maybe {
		maybe = append(maybe, d)
	}
	doubt := c.w.doubt || len(maybe) > 0
	c.w.mu.Unlock()
	if !doubt {
		return nil
	}
	for _, d := range maybe {
		var gen int64
		found, err := x.row(ctx, c.s.sql.generation, []any{&gen}, d.event, d.handler)
		if err != nil {
			return err
		}
		c.w.mu.Lock()
		if r := c.w.running[d]; r != nil && (!found || gen != r.token.Claims) {
			c.w.doubt = true // until the record and the lane have followed
			c.w.remove(d, r.token)
		}
		delete(c.w.maybe, d)
		c.w.mu.Unlock()
	}
	owner := c.owner()
	list, err := x.claims(ctx, c.s.sql.claimsOf, owner)
	if err != nil {
		return err
	}
	records := make(map[int64]bool)
	for _, l := range list {
		c.w.mu.Lock()
		r := c.w.running[deliveryKey{l.event, l.handler}]
		known := r != nil && r.claim == l.number && r.token.Claims == l.gen
		c.w.mu.Unlock()
		records[l.number] = records[l.number] || known
		if known {
			continue
		}
		if _, err := x.exec(ctx, c.s.sql.giveBack, l.event, l.handler, l.gen, c.now); err != nil {
			return err
		}
	}
	for number, known := range records {
		if known {
			continue
		}
		if _, err := x.exec(ctx, c.s.sql.dropClaim, owner, number); err != nil {
			return err
		}
	}
	if err := c.freeIdle(ctx, x, owner); err != nil {
		return err
	}
	c.dropKnown()
	x.onCommit(func() {
		c.w.mu.Lock()
		c.w.doubt = false
		c.w.mu.Unlock()
	})
	return nil
}

// freeIdle frees the lanes in which nothing of the owner runs.
func (c *claiming) freeIdle(ctx context.Context, x *session, owner int64) error {
	var idle []slice
	err := x.rows(ctx, c.s.sql.lanesOf, func(scan func(...any) error) (bool, error) {
		var at slice
		err := scan(&at.handler, &at.lane)
		c.w.mu.Lock()
		if c.w.held[at] == 0 {
			idle = append(idle, at)
		}
		c.w.mu.Unlock()
		return true, err
	}, owner)
	if err != nil {
		return err
	}
	x.onCommit(func() { c.s.changes.Add(1) })
	for _, at := range idle {
		if _, err := x.exec(ctx, c.s.sql.freeLane, at.handler, at.lane, owner); err != nil {
			return err
		}
	}
	return nil
}

// Extend renews the owner's lease; see [store.Claimer]. It is one statement,
// however many leases there are.
func (s *Store) Extend(
	ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration,
) ([]bool, error) {
	const op = "extend leases"
	if err := checkTokens(op, leases); err != nil {
		return nil, err
	}
	w := s.known(owner)
	holds := make([]bool, len(leases))
	id := w.id()
	if id == 0 {
		return holds, s.usable(ctx, op)
	}
	err := s.write(ctx, op, func(ctx context.Context, x *session) error {
		until := now.Add(lease).UnixMilli()
		renewed, err := x.exec(ctx, s.sql.renewOwner, id, until)
		if err != nil || renewed == 0 {
			return err
		}
		x.onCommit(func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.owner != id {
				return
			}
			w.lease = max(w.lease, until)
			for i, l := range leases {
				holds[i] = w.holds(l) != nil
			}
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return holds, nil
}

// Relinquish ends the owner; see [store.Claimer].
func (s *Store) Relinquish(ctx context.Context, owner string, now time.Time) error {
	const op = "relinquish owner"
	if s.known(owner) == nil {
		return s.usable(ctx, op)
	}
	w, err := s.enterWorker(ctx, op, owner)
	if err != nil {
		return err
	}
	defer w.leave()
	id := w.id()
	if id == 0 {
		s.drop(w)
		return s.usable(ctx, op)
	}
	err = s.write(ctx, op, func(ctx context.Context, x *session) error {
		x.onCommit(func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.forget()
			w.todo = make(map[int64]*todo)
		})
		return x.dismiss(ctx, id, s.sql.giveBack, now.UnixMilli())
	})
	if err == nil {
		s.drop(w)
	}
	return err
}
