package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

type ownerSQL struct {
	addOwner, lockOwner, renewOwner, lockExpired, lockOwners, dropOwners string
	charge, giveBack, dropClaims, dropClaimsOf, freeLanes, claimsOf      string
	generations, allOwners                                               string
}

func newOwnerSQL(c Config) ownerSQL {
	const listed = fence + ` RETURNING d.handler, d.lane, d.due`
	return ownerSQL{
		addOwner:   c.named(`INSERT INTO {t:owners} (id, name, lease) VALUES ($1, $2, $3)`),
		lockOwner:  c.named(`SELECT lease FROM {t:owners} WHERE id = $1 FOR NO KEY UPDATE`),
		renewOwner: c.named(`UPDATE {t:owners} SET lease = greatest(lease, $2) WHERE id = $1`),
		// One of which a completion waits for its commit is left alone: that has a
		// key share of the row, which nobody minds who does not delete it.
		lockExpired:  c.named(`SELECT id FROM {t:owners} WHERE lease <= $1 AND id <> $2 ORDER BY id FOR UPDATE SKIP LOCKED`),
		lockOwners:   c.named(`SELECT id FROM {t:owners} WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE`),
		allOwners:    c.named(`SELECT id FROM {t:owners}`),
		dropOwners:   c.named(`DELETE FROM {t:owners} WHERE id = ANY($1::bigint[])`),
		charge:       c.named(`UPDATE {t:deliveries} d SET attempts = attempts + 1, lost = lost + 1, gen = gen + 1, updated = $4` + listed),
		giveBack:     c.named(`UPDATE {t:deliveries} d SET gen = gen + 1, updated = $4` + listed),
		dropClaimsOf: c.named(`DELETE FROM {t:claims} WHERE owner = ANY($1::bigint[])`),
		dropClaims:   c.named(`DELETE FROM {t:claims} WHERE owner = $1 AND n = ANY($2::bigint[])`),
		freeLanes:    c.named(`UPDATE {t:lanes} SET owner = NULL, epoch = epoch + 1 WHERE owner = ANY($1::bigint[])`),
		claimsOf:     c.named(`SELECT n, events, handlers, gens FROM {t:claims} WHERE owner = $1`),
		generations: c.named(`SELECT d.event, d.handler, d.gen FROM unnest($1::bigint[], $2::integer[]) AS w(event, handler)
			CROSS JOIN LATERAL (SELECT * FROM {t:deliveries} d WHERE d.event = w.event AND d.handler = w.handler LIMIT 1) d
			WHERE d.state = 0`),
	}
}

// reap takes over from owners whose lease has expired: everything that they ran
// is charged one attempt, exactly once, as their claims go with it. One that is
// just claiming, or that somebody else takes over from, is left alone.
func (c *claiming) reap(ctx context.Context) error {
	me := c.w.id()
	return c.s.write(ctx, c.op, func(ctx context.Context, x *session) error {
		var dead []int64
		err := x.rows(ctx, c.s.sql.lockExpired, func(scan func(...any) error) (bool, error) {
			var id int64
			err := scan(&id)
			dead = append(dead, id)
			return true, err
		}, c.now, me)
		if err != nil || len(dead) == 0 {
			return err
		}
		err = x.dismiss(ctx, dead, c.s.sql.charge, c.now)
		c.s.crash("reaped owners")
		return err
	})
}

// dismiss ends owners, whose rows are locked. The statement says what becomes of
// what they run.
func (x *session) dismiss(ctx context.Context, owners []int64, each string, now int64) error {
	var events []int64
	var handlers, gens []int32
	err := x.rows(ctx, x.s.sql.claimsOfMany, func(scan func(...any) error) (bool, error) {
		var d deliveryKey
		var gen int32
		err := scan(&d.event, &d.handler, &gen)
		events, handlers, gens = append(events, d.event), append(handlers, d.handler), append(gens, gen)
		return true, err
	}, owners)
	if err != nil {
		return err
	}
	if err := x.rows(ctx, each, x.hinted, events, handlers, gens, now); err != nil {
		return err
	}
	for _, text := range []string{x.s.sql.dropClaimsOf, x.s.sql.freeLanes, x.s.sql.dropOwners} {
		if _, err := x.exec(ctx, text, owners); err != nil {
			return err
		}
	}
	return nil
}

// register gives the worker an owner that nobody knows.
func (c *claiming) register(ctx context.Context) error {
	id, err := newOwnerID()
	if err != nil {
		return store.NewError(c.op, store.ErrUnavailable, "", err)
	}
	until := c.now + c.lease
	return c.s.write(ctx, c.op, func(ctx context.Context, x *session) error {
		x.onCommit(func() {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			c.w.forget()
			c.w.owner, c.w.lease = id, until
		})
		_, err := x.exec(ctx, c.s.sql.addOwner, id, c.w.name, until)
		if stateOf(err) == codeUniqueViolation {
			return nil // It was added by a commit of which we did not hear.
		}
		return err
	})
}

func newOwnerID() (int64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:])>>2) + 1, nil
}

// reconcile makes the database list for the owner exactly what this instance
// has handed out and not seen settled. The rest is given back without a charge.
func (c *claiming) reconcile(ctx context.Context) error {
	me := c.w.id()
	if me == 0 {
		return nil
	}
	return c.s.write(ctx, c.op, func(ctx context.Context, x *session) error {
		// It waits for a claim of ours whose commit may still be under way.
		var lease int64
		if found, err := x.row(ctx, c.s.sql.lockOwner, []any{&lease}, me); err != nil || !found {
			return err
		}
		if err := c.settleDoubts(ctx, x); err != nil {
			return err
		}
		var events []int64
		var handlers, gens []int32
		var stale []int64
		err := x.rows(ctx, c.s.sql.claimsOf, func(scan func(...any) error) (bool, error) {
			var number int64
			var ofEvents []int64
			var ofHandlers, ofGens []int32
			if err := scan(&number, &ofEvents, &ofHandlers, &ofGens); err != nil {
				return false, err
			}
			known := false
			for i := range ofEvents {
				if c.knows(number, deliveryKey{ofEvents[i], ofHandlers[i]}, ofGens[i]) {
					known = true
					continue
				}
				events, handlers, gens = append(events, ofEvents[i]), append(handlers, ofHandlers[i]), append(gens, ofGens[i])
			}
			if !known {
				stale = append(stale, number)
			}
			return true, nil
		}, me)
		if err != nil {
			return err
		}
		err = x.rows(ctx, c.s.sql.release, func(scan func(...any) error) (bool, error) {
			var event int64
			return x.hinted(func(dest ...any) error { return scan(append([]any{&event}, dest...)...) })
		}, events, handlers, gens, c.now, keepDues(len(events)), make([]bool, len(events)))
		if err != nil {
			return err
		}
		if _, err := x.exec(ctx, c.s.sql.dropClaims, me, stale); err != nil {
			return err
		}
		x.onCommit(func() {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			c.w.doubt = false
			c.w.dropped(stale)
		})
		return nil
	})
}

func (c *claiming) knows(number int64, d deliveryKey, gen int32) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	r := c.w.running[d]
	return r != nil && r.claim == number && r.lease.Token.Claims == int64(gen)
}

// settleDoubts looks up what callers' transactions may have completed.
func (c *claiming) settleDoubts(ctx context.Context, x *session) error {
	c.w.mu.Lock()
	var events []int64
	var handlers []int32
	for d := range c.w.maybe {
		events, handlers = append(events, d.event), append(handlers, d.handler)
	}
	c.w.mu.Unlock()
	if len(events) == 0 {
		return nil
	}
	found := make(map[deliveryKey]int32, len(events))
	err := x.rows(ctx, c.s.sql.generations, func(scan func(...any) error) (bool, error) {
		var d deliveryKey
		var gen int32
		err := scan(&d.event, &d.handler, &gen)
		found[d] = gen
		return true, err
	}, events, handlers)
	if err != nil {
		return err
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range events {
		d := deliveryKey{events[i], handlers[i]}
		gen, pending := found[d]
		if r := c.w.running[d]; r != nil && (!pending || int64(gen) != r.lease.Token.Claims) {
			c.w.remove(d, r.lease.Token)
		}
		// One that is still pending may be completed by a transaction that is
		// still open: it stays until it is settled otherwise.
		if !pending {
			delete(c.w.maybe, d)
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
	if err := s.usable(ctx, op); err != nil {
		return nil, err
	}
	w := s.known(owner)
	holds := make([]bool, len(leases))
	id := w.id()
	if id == 0 || !w.anyLease(leases) {
		return holds, nil
	}
	until := now.Add(lease).UnixMilli()
	err := s.write(ctx, op, func(ctx context.Context, x *session) error {
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

// anyLease reports whether the worker holds one of the leases, or none is asked
// for.
func (w *worker) anyLease(leases []store.Lease) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range leases {
		if w.holds(l) != nil {
			return true
		}
	}
	return len(leases) == 0
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
		})
		// It waits for a claim of ours whose commit may still be under way.
		if _, err := x.exec(ctx, s.sql.lockOwner, id); err != nil {
			return err
		}
		return x.dismiss(ctx, []int64{id}, s.sql.giveBack, now.UnixMilli())
	})
	if err == nil {
		s.drop(w)
	}
	return err
}
