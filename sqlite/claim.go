package sqlite

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type claimSQL struct {
	discover, foreignLanes, readLane, headOf, claimsOfOthers, runningKey, park, behind, takeLane, addClaim, readEvents string
}

func newClaimSQL(q func(string) string) claimSQL {
	return claimSQL{
		// The lanes of a handler that have ready deliveries, each with the due time
		// of the first in one number (see lanesWithWork), by hopping from lane to
		// lane: one probe of the index for each.
		discover: q(`WITH RECURSIVE hop (at) AS (
			SELECT * FROM (SELECT (lane << 54) + max(-1 << 52, min(due, 1 << 52)) FROM {p}deliveries INDEXED BY {p}deliveries_ready
				WHERE handler = ?1 AND state = 0 ORDER BY lane, due LIMIT 1)
			UNION ALL
			SELECT (SELECT (n.lane << 54) + max(-1 << 52, min(n.due, 1 << 52)) FROM {p}deliveries n INDEXED BY {p}deliveries_ready
				WHERE n.handler = ?1 AND n.state = 0 AND n.lane > (hop.at + (1 << 53)) >> 54 ORDER BY n.lane, n.due LIMIT 1)
			FROM hop WHERE hop.at IS NOT NULL)
			SELECT at FROM hop WHERE at IS NOT NULL`),
		foreignLanes: q(`SELECT lane FROM {p}lanes WHERE handler = ?1 AND owner NOT IN (0, ?2)`),
		// The ready deliveries of one slice from a place on, unless another owner
		// has it; of keyed ones the first unfinished of the key, and a later one.
		readLane: q(`SELECT d.event, d.due, ifnull(d.key, ''), d.gen, d.attempts, d.lost, d.alone,
			CASE WHEN d.key IS NULL THEN 0 ELSE (SELECT h.event FROM {p}deliveries h INDEXED BY {p}deliveries_open
				WHERE h.handler = d.handler AND h.key = d.key AND h.state < 3 ORDER BY h.event LIMIT 1) END,
			CASE WHEN d.key IS NULL THEN 0 ELSE EXISTS (SELECT 1 FROM {p}deliveries f INDEXED BY {p}deliveries_open
				WHERE f.handler = d.handler AND f.key = d.key AND f.state < 3 AND f.event > d.event) END
			FROM {p}deliveries d INDEXED BY {p}deliveries_ready
			WHERE d.handler = ?1 AND d.lane = ?2 AND d.state = 0 AND (d.due, d.event) >= (?3, ?4)
				AND NOT EXISTS (SELECT 1 FROM {p}lanes l WHERE l.handler = ?1 AND l.lane = ?2 AND l.owner NOT IN (0, ?5))
			ORDER BY d.due, d.event`),
		headOf: q(`SELECT event, state, lane, due FROM {p}deliveries INDEXED BY {p}deliveries_open
			WHERE handler = ?1 AND key = ?2 AND state < 3 ORDER BY event LIMIT 1`),
		claimsOfOthers: q(`SELECT owner, list FROM {p}claims WHERE owner <> ?1`),
		runningKey: q(`SELECT key FROM {p}deliveries
			WHERE event = ?1 AND handler = ?2 AND gen = ?3 AND state = 0 AND key IS NOT NULL`),
		// What lies in a lane of another owner may run.
		park: q(`UPDATE {p}deliveries SET state = 1 WHERE event = ?1 AND handler = ?2 AND state = 0
			AND NOT EXISTS (SELECT 1 FROM {p}lanes l WHERE l.handler = {p}deliveries.handler
				AND l.lane = {p}deliveries.lane AND l.owner NOT IN (0, ?3))`),
		behind: q(`SELECT event, state FROM {p}deliveries INDEXED BY {p}deliveries_open
			WHERE handler = ?1 AND key = ?2 AND state < 3 AND event > ?3 ORDER BY event LIMIT ?4`),
		takeLane: q(`INSERT INTO {p}lanes (handler, lane, epoch, owner) VALUES (?1, ?2, 1, ?3)
			ON CONFLICT (handler, lane) DO UPDATE SET owner = excluded.owner, epoch = epoch + (owner <> excluded.owner)
			WHERE owner IN (0, excluded.owner) RETURNING epoch`),
		addClaim: q(`INSERT INTO {p}claims (owner, n, list) VALUES (?1, ?2, ?3)`),
		readEvents: q(`SELECT e.seq, e.id, e.type, e.source, ifnull(e.key, ''), e.created, ifnull(e.correlation, ''),
			ifnull(e.causation, ''), e.headers, e.payload
			FROM json_each(?1) j CROSS JOIN {p}events e ON e.seq = j.value`),
	}
}

// A look for lanes is repeated at least this often while claims find work
// without one, so that work which only a look finds is not starved.
const (
	lookEvery  = 64
	lookMillis = 1000
)

// Claim takes due deliveries; see [store.Claimer].
//
// An owner holds exactly the lanes in which something of it runs. When there is
// nothing to take, to take over or to renew, a claim only reads.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
	const op = "claim deliveries"
	if r.Lease <= 0 {
		return store.ClaimResult{}, invalid(op, "the lease must be longer than 0")
	}
	w, err := s.enterWorker(ctx, op, r.Owner)
	if err != nil {
		return store.ClaimResult{}, err
	}
	defer w.leave()
	c := &claiming{s: s, w: w, r: r, op: op, now: r.Now.UnixMilli(), lease: r.Lease.Milliseconds()}
	if err := c.resolve(ctx); err != nil {
		return store.ClaimResult{}, s.translate(op, err)
	}
	c.hold()
	// Where work is known, the claim begins to write at once. An empty answer
	// is given only after a fresh look.
	if c.known() && !c.overdue() {
		if err := c.take(ctx); err != nil {
			return store.ClaimResult{}, err
		}
		if len(c.deliveries) > 0 {
			return c.result(), nil
		}
	}
	if err := c.look(ctx); err != nil {
		return store.ClaimResult{}, err
	}
	if c.known() || c.mustWrite() {
		if err := c.take(ctx); err != nil {
			return store.ClaimResult{}, err
		}
	}
	return c.result(), nil
}

// claiming is one call of Claim.
type claiming struct {
	s          *Store
	w          *worker
	r          store.ClaimRequest
	op         string
	now, lease int64

	wants []want
	// expired says that the last look saw an owner to take over from.
	expired bool
	// work says that the last look saw something to take.
	work bool
	*plan
	deliveries []store.Claimed
}

// want is a handler that is asked for, with the numbers of all its ids.
type want struct {
	limit int
	refs  []int64
	ids   []string
	held  bool // paused
}

// resolve finds the numbers of the handlers. Ids without one have no deliveries.
func (c *claiming) resolve(ctx context.Context) error {
	taken := make(map[int64]bool)
	var missing bool
	for _, h := range c.r.Handlers {
		if h.Limit <= 0 || c.r.Limit <= 0 {
			continue
		}
		if len(h.Aliases) > 0 && !c.s.handlers.joined(setName(h.Handler)) {
			if err := c.s.write(ctx, c.op, func(ctx context.Context, x *session) error {
				_, err := x.needSet(ctx, h.Handler)
				return err
			}); err != nil {
				return err
			}
		}
		wanted := want{limit: h.Limit}
		for _, id := range append([]string{h.ID}, h.Aliases...) {
			ref, ok := c.s.handlers.ref(id)
			if !ok {
				missing = true
			} else if !taken[ref] {
				taken[ref] = true
				wanted.refs = append(wanted.refs, ref)
			}
			wanted.ids = append(wanted.ids, id)
		}
		c.wants = append(c.wants, wanted)
	}
	if !missing {
		return nil
	}
	return c.s.read(ctx, c.op, func(ctx context.Context, x *session) error {
		for i := range c.wants {
			for _, id := range c.wants[i].ids {
				ref, ok, err := x.findRef(ctx, id)
				if err != nil {
					return err
				}
				if ok && !taken[ref] {
					taken[ref] = true
					c.wants[i].refs = append(c.wants[i].refs, ref)
				}
			}
		}
		return nil
	})
}

// known reports whether memory has a place where something may be due.
func (c *claiming) known() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range c.wants {
		if c.dueIn(&c.wants[i]) {
			return true
		}
	}
	return false
}

// dueIn reports whether the handler may have something due.
func (c *claiming) dueIn(wanted *want) bool {
	if wanted.held {
		return false
	}
	for _, ref := range wanted.refs {
		if t := c.w.todo[ref]; t != nil {
			if _, at, ok := t.first(); ok && at.due <= c.now {
				return true
			}
		}
	}
	return false
}

// overdue reports whether it is time for a look although work is known.
func (c *claiming) overdue() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.claimed++
	return c.w.claimed > lookEvery || c.now-c.w.looked >= lookMillis || c.now < c.w.looked
}

// mustWrite reports whether the claim has something to write without taking
// anything.
func (c *claiming) mustWrite() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.work || c.expired || c.w.doubt || len(c.w.maybe) > 0 {
		return true
	}
	return len(c.w.running) > 0 && lane.LeaseAged(c.w.lease, c.now, c.lease)
}

// result is what the claim brought.
func (c *claiming) result() store.ClaimResult {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	r := store.ClaimResult{Deliveries: c.deliveries}
	if c.plan != nil {
		r.More = c.more || c.cut
	}
	var next time.Time
	for i := range c.wants {
		if c.wants[i].held {
			continue
		}
		for _, ref := range c.wants[i].refs {
			t := c.w.todo[ref]
			if t == nil {
				continue
			}
			for n := range t.places {
				if at := t.places[n]; t.has[n] && at.due > c.now && (next.IsZero() || at.due < next.UnixMilli()) {
					next = instant(at.due)
				}
			}
		}
	}
	r.NextDue = next
	return r
}
