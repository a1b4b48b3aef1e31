package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type claimSQL struct {
	ownLease, shareOwner, tryOwners, sequence, expired, discover, discoverFrom, foreign, running, take, owned, read, park, addClaim string
}

// lockedOwners are those that tryOwners has locked in the transaction.
const lockedOwners = `(SELECT nullif(current_setting('relaybus.locked', true), '')::bigint[])::bigint[]`

// stillRuns is whether what a claim record lists has not ended.
const stillRuns = `EXISTS (SELECT FROM {t:deliveries} d WHERE d.event = c.event AND d.handler = c.handler AND d.gen = c.gen
	AND d.state + 0 = 0 LIMIT 1)`

func newClaimSQL(c Config) claimSQL {
	return claimSQL{
		ownLease: c.named(`SELECT lease FROM {t:owners} WHERE id = $1`),
		// Whoever wants to take something from the owner waits for the end of the
		// claim.
		shareOwner: c.named(`SELECT lease FROM {t:owners} WHERE id = $1 FOR SHARE`),
		// Of those who claim just now nothing is taken: nobody waits for another's
		// claim. The next statements find there whom it has locked.
		tryOwners: c.named(`SELECT set_config('relaybus.locked', coalesce(array_agg(id), '{}')::text, true) FROM (SELECT id FROM {t:owners}
			WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED) o`),
		// Sequences are given out before a commit, and by failed publishes, too: it
		// only tells when nobody has published.
		sequence: c.named(`SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {t:events_seq_seq}`),
		foreign:  c.named(`SELECT handler, lane, owner FROM {t:lanes} WHERE handler = ANY($1::integer[]) AND owner <> $2`),
		expired:  c.named(`SELECT EXISTS (SELECT FROM {t:owners} WHERE lease <= $1 AND id <> $2)`),
		// The lanes of the handlers that have ready deliveries, with the first.
		discover: c.named(`SELECT l.handler, l.lane, coalesce(l.owner, 0), d.due, d.event
			FROM unnest($1::integer[]) AS r(ref)
			CROSS JOIN LATERAL (SELECT handler, lane, owner FROM {t:lanes} WHERE handler = r.ref ORDER BY lane) l
			CROSS JOIN LATERAL (SELECT due, event FROM {t:deliveries}
				WHERE handler = l.handler AND lane = l.lane AND state = 0 ORDER BY due, event LIMIT 1) d`),
		// The same from a place on in each.
		discoverFrom: c.named(`SELECT w.handler, w.lane, coalesce(l.owner, 0), d.due, d.event
			FROM unnest($1::integer[], $2::smallint[], $3::bigint[], $4::bigint[]) AS w(handler, lane, due, event)
			CROSS JOIN LATERAL (SELECT owner FROM {t:lanes} l WHERE l.handler = w.handler AND l.lane = w.lane LIMIT 1) l
			CROSS JOIN LATERAL (SELECT d.due, d.event FROM {t:deliveries} d WHERE d.handler = w.handler AND d.lane = w.lane
				AND d.state = 0 AND (d.due, d.event) >= (w.due, w.event) ORDER BY d.due, d.event LIMIT 1) d`),
		running: c.named(`SELECT DISTINCT c.handler, c.lane FROM {t:claims} k
			CROSS JOIN LATERAL unnest(k.events, k.handlers, k.gens, k.lanes) AS c(event, handler, gen, lane)
			WHERE k.owner <> $1 AND c.handler = ANY($2::integer[]) AND ` + stillRuns),
		// Free lanes, and those of other owners, whose rows are locked, in which
		// nothing of them runs.
		take: c.named(`WITH t AS MATERIALIZED (SELECT l.handler, l.lane FROM {t:lanes} l
				WHERE l.handler = ANY($2::integer[])
					AND CASE WHEN true THEN (l.handler, l.lane) IN (SELECT * FROM unnest($2::integer[], $3::smallint[])) END
					AND l.owner IS DISTINCT FROM $1 AND (l.owner IS NULL OR (l.owner = ANY(` + lockedOwners + `)
					AND NOT EXISTS (SELECT FROM {t:claims} k
						CROSS JOIN LATERAL unnest(k.events, k.handlers, k.gens, k.lanes) AS c(event, handler, gen, lane)
						WHERE k.owner = l.owner AND c.handler = l.handler AND c.lane = l.lane AND ` + stillRuns + `)))
				ORDER BY l.handler, l.lane FOR UPDATE SKIP LOCKED)
			UPDATE {t:lanes} l SET owner = $1, epoch = epoch + 1 FROM t WHERE l.handler = t.handler AND l.lane = t.lane
			RETURNING l.handler, l.lane`),
		owned: c.named(`SELECT handler, lane FROM {t:lanes} WHERE owner = $1 AND handler = ANY($2::integer[])`),
		// The ready deliveries of slices of ours, each from a place on, with their
		// events; of keyed ones the first unfinished of the key, and a later one.
		read: c.named(`SELECT d.n, d.event, d.handler, d.lane, d.due, d.gen, d.attempts, d.lost, d.alone, coalesce(d.key, ''), d.epoch,
				h.handler, h.event, CASE WHEN d.key IS NULL OR h.event <> d.event THEN false ELSE EXISTS (SELECT FROM {t:deliveries} f
					WHERE f.handler = d.handler AND f.key >= d.key AND f.key <= d.key AND f.key IS NOT NULL AND f.state < 3
						AND f.event > d.event ORDER BY f.key, f.event LIMIT 1) END,
				e.id, e.type, e.source, e.created, coalesce(e.correlation, ''), coalesce(e.causation, ''), e.headers, e.payload
			FROM (SELECT w.n, l.epoch, d.* FROM unnest($2::integer[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[])
					WITH ORDINALITY AS w(handler, lane, due, event, most, n)
				CROSS JOIN LATERAL (SELECT epoch FROM {t:lanes} l
					WHERE l.handler = w.handler AND l.lane = w.lane AND l.owner = $1 LIMIT 1) l
				CROSS JOIN LATERAL (SELECT d.event, d.handler, d.lane, d.due, d.gen, d.attempts, d.lost, d.alone, d.key
					FROM {t:deliveries} d WHERE d.handler = w.handler AND d.lane = w.lane AND d.state = 0 AND d.due <= $7
						AND (d.due, d.event) >= (w.due, w.event) ORDER BY d.due, d.event LIMIT w.most) d
				LIMIT $8) d
			CROSS JOIN LATERAL (SELECT * FROM {t:events} e WHERE e.seq = d.event LIMIT 1) e
			LEFT JOIN LATERAL (SELECT h.handler, h.event FROM unnest($9::integer[]) AS g(ref)
				CROSS JOIN LATERAL (SELECT o.handler, o.event FROM {t:deliveries} o
					WHERE o.handler = g.ref AND o.key >= d.key AND o.key <= d.key AND o.key IS NOT NULL AND o.state < 3
					ORDER BY o.key, o.event LIMIT 1) h
				WHERE d.key IS NOT NULL ORDER BY h.event LIMIT 1) h ON true`),
		// A delivery is parked only while what blocks it can't move on: that is
		// locked, and a transaction that ends it finds the parked one afterwards.
		park: c.named(`WITH h AS MATERIALIZED (SELECT d.event, d.handler FROM {t:deliveries} d
				WHERE d.event = ANY($3::bigint[]) AND CASE WHEN d.state < 3 THEN (d.event, d.handler) IN
					(SELECT * FROM unnest($3::bigint[], $4::integer[])) ELSE false END
				ORDER BY d.event, d.handler FOR SHARE SKIP LOCKED)
			UPDATE {t:deliveries} d SET state = 1 WHERE d.event = ANY($1::bigint[])
				AND CASE WHEN d.state = 0 THEN (d.event, d.handler) IN (SELECT c.event, c.handler
					FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::integer[]) AS c(event, handler, head, of)
					WHERE (c.head, c.of) IN (SELECT event, handler FROM h)) ELSE false END`),
		addClaim: c.named(`INSERT INTO {t:claims} (owner, n, events, handlers, gens, lanes) VALUES ($1, $2, $3, $4, $5, $6)`),
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
// A claim from lanes that the owner has costs two round trips, one that takes
// lanes a few more, and one that finds nothing one. An owner keeps its lanes, and
// anybody who has nothing else to do may take those in which nothing of it runs.
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
	c := &claiming{
		s: s, w: w, r: r, op: op, now: r.Now.UnixMilli(), lease: r.Lease.Milliseconds(), taken: make(map[string]int),
	}
	if err := c.run(ctx); err != nil {
		return store.ClaimResult{}, translate(op, err)
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
	expired    bool
	deliveries []store.Claimed
	// total counts them, taken by handler.
	total int
	taken map[string]int
	// more says that due work was left behind.
	more bool
	// behind says that somebody else may have published since the last look.
	behind bool
}

// want is a handler that is asked for, with the numbers of all its ids.
type want struct {
	limit int
	refs  []int32
	id    string
	held  bool // paused
}

func (c *claiming) run(ctx context.Context) error {
	if err := c.resolve(ctx); err != nil {
		return err
	}
	if c.w.inDoubt() {
		if err := c.reconcile(ctx); err != nil {
			return err
		}
	}
	// Where work is known, the claim takes it at once. An empty answer is given
	// only after a fresh look, and so is one that is not full when others may have
	// published meanwhile.
	if c.known() && !c.overdue() {
		if err := c.attempt(ctx); err != nil || len(c.deliveries) > 0 && !c.behind {
			return err
		}
	}
	if err := c.look(ctx); err != nil {
		return c.orWhatWeHave(err)
	}
	if c.expired {
		if err := c.reap(ctx); err != nil {
			return c.orWhatWeHave(err)
		}
		c.w.horizon = horizon{} // What was taken over is due since long.
		if err := c.look(ctx); err != nil {
			return c.orWhatWeHave(err)
		}
	}
	if c.known() || c.mustRenew() {
		return c.orWhatWeHave(c.attempt(ctx))
	}
	return nil
}

// orWhatWeHave drops an error of a step that follows on a claim that is committed:
// what that took has to be handed out.
func (c *claiming) orWhatWeHave(err error) error {
	if len(c.deliveries) > 0 {
		return nil
	}
	return err
}

func (w *worker) inDoubt() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt || len(w.maybe) > 0
}

// resolve finds the numbers of the handlers. Ids without one have no deliveries.
func (c *claiming) resolve(ctx context.Context) error {
	c.wants = c.wants[:0]
	var missing []string
	for _, h := range c.r.Handlers {
		if h.Limit <= 0 || c.r.Limit <= 0 {
			continue
		}
		if len(h.Aliases) > 0 && !c.s.handlers.joined(setName(h.Handler)) {
			if _, err := c.s.needSets(ctx, c.op, []store.Handler{h.Handler}); err != nil {
				return err
			}
		}
		for _, id := range idsOf(h.Handler) {
			if _, ok := c.s.handlers.ref(id); !ok {
				missing = append(missing, id)
			}
		}
	}
	if len(missing) > 0 {
		if err := c.s.learnRefs(ctx, c.op, missing); err != nil {
			return err
		}
	}
	taken := make(map[int32]bool)
	var all []int32
	for _, h := range c.r.Handlers {
		if h.Limit <= 0 || c.r.Limit <= 0 {
			continue
		}
		wanted := want{limit: h.Limit, id: h.ID}
		for _, id := range idsOf(h.Handler) {
			if ref, ok := c.s.handlers.ref(id); ok {
				wanted.refs = append(wanted.refs, ref)
			}
		}
		wanted.refs = c.w.group(wanted.refs)
		// One that is asked for twice, or under another of its ids, counts once.
		if len(wanted.refs) == 0 || slices.ContainsFunc(wanted.refs, func(ref int32) bool { return taken[ref] }) {
			continue
		}
		for _, ref := range wanted.refs {
			taken[ref] = true
		}
		all = append(all, wanted.refs...)
		c.wants = append(c.wants, wanted)
	}
	if err := c.s.needLanes(ctx, c.op, all); err != nil {
		return err
	}
	c.rotate()
	c.hold()
	return nil
}

// group returns the numbers of all ids of a handler, as of the last look.
func (w *worker) group(refs []int32) []int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(refs)
	for _, ref := range refs {
		if group := w.groups[ref]; group != 0 {
			for other, of := range w.groups {
				if of == group {
					all = append(all, other)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// hold marks the handlers that are paused, as far as is known.
func (c *claiming) hold() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range c.wants {
		c.wants[i].held = slices.ContainsFunc(c.wants[i].refs, func(ref int32) bool { return c.w.paused[ref] })
	}
}

// rotate puts the handlers first that have waited longest.
func (c *claiming) rotate() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	slices.SortStableFunc(c.wants, func(a, b want) int { return int(c.w.served[a.id] - c.w.served[b.id]) })
}

// learnRefs reads the numbers of handlers that are committed.
func (s *Store) learnRefs(ctx context.Context, op string, ids []string) error {
	return s.read(ctx, op, func(ctx context.Context, x *session) error {
		refs, err := x.findRefs(ctx, ids)
		for id, ref := range refs {
			s.handlers.add(id, ref)
		}
		return err
	})
}

// needLanes makes sure that the lanes of the handlers have rows.
func (s *Store) needLanes(ctx context.Context, op string, refs []int32) error {
	missing := s.handlers.withoutLanes(refs)
	if len(missing) == 0 {
		return nil
	}
	return s.write(ctx, op, func(ctx context.Context, x *session) error {
		x.onCommit(func() { s.handlers.addLanes(missing) })
		_, err := x.exec(ctx, s.sql.addLanes, missing)
		return err
	})
}

// known reports whether something due is known.
func (c *claiming) known() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range c.wants {
		if c.wants[i].held {
			continue
		}
		for at, t := range c.w.todo {
			if t.due <= c.now && slices.Contains(c.wants[i].refs, at.handler) {
				return true
			}
		}
	}
	return false
}

// overdue reports whether it is time for a look.
func (c *claiming) overdue() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.claimed++
	return !c.w.seen || c.w.claimed > lookEvery || c.now-c.w.looked >= lookMillis || c.now < c.w.looked
}

// mustRenew reports whether the lease is to be renewed although there is nothing
// to take.
func (c *claiming) mustRenew() bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return len(c.w.running) > 0 && lane.LeaseAged(c.w.lease, c.now, c.lease)
}

// result is what the claim brought.
func (c *claiming) result() store.ClaimResult {
	r := store.ClaimResult{Deliveries: c.deliveries, More: c.more}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range c.wants {
		if c.wants[i].held {
			continue
		}
		for at, t := range c.w.todo {
			if !slices.Contains(c.wants[i].refs, at.handler) {
				continue
			}
			if due := time.UnixMilli(t.due).UTC(); t.due > c.now && (r.NextDue.IsZero() || due.Before(r.NextDue)) {
				r.NextDue = due
			}
		}
	}
	return r
}
