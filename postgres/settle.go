package postgres

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type settleSQL struct {
	complete, completeKeeping, completeTx, completeTxKeeping, reschedule, release, bury, unblock, shareMoves, lockMoves string
}

// keepDue stands for a due time that stays as it is.
const keepDue = math.MinInt64

func keepDues(n int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = keepDue
	}
	return list
}

// ofKey selects the unfinished deliveries of a key, in a way that only the index of
// keys gives them in the order of their events: as a range of keys.
const ofKey = `d.key >= k.key AND d.key <= k.key AND d.key IS NOT NULL AND d.state < 3`

// fence selects the deliveries of $1, $2 and $3 that are pending and have the
// generation of the claim, which grows when the claim ends in another way than by a
// completion. The pairs are compared inside of a CASE, which no planner turns into a
// join: so the deliveries are found by their key, whatever the statistics say.
const fence = ` WHERE d.event = ANY($1::bigint[]) AND CASE WHEN d.state = 0 THEN (d.event, d.handler, d.gen) IN
	(SELECT * FROM unnest($1::bigint[], $2::integer[], $3::integer[])) ELSE false END`

func newSettleSQL(c Config) settleSQL {
	const (
		lane = ` RETURNING d.event, d.handler, d.lane, d.due`
		fits = ` AND EXISTS (SELECT FROM {t:meta} WHERE ` + fitting + `)`
		done = ` RETURNING d.*),
			done AS (INSERT INTO {t:completions} (at, events) SELECT $4::bigint, array_agg(event) FROM d HAVING count(*) > 0)`
		gone = `WITH d AS (DELETE FROM {t:deliveries} d` + fence + done
		// In a caller's transaction nothing else looks at the version of the schema.
		// Nobody takes over from the owner before its end, instead of waiting for it;
		// and as nothing but a commit is to follow, a process that hangs there does
		// not hold its locks for ever.
		goneTx = `WITH d AS (DELETE FROM {t:deliveries} d` + fence + fits + `
			AND EXISTS (SELECT FROM {t:owners} WHERE id = $5 FOR KEY SHARE)
			AND (SELECT set_config('idle_in_transaction_session_timeout', coalesce($6::text,
				current_setting('idle_in_transaction_session_timeout')), true)) IS NOT NULL` + done
		kept = `, kept AS (INSERT INTO {t:history} (event, handler, at, due, attempts, lost, error)
			SELECT event, handler, $4::bigint, due, attempts, lost, error FROM d)`
		told = ` SELECT event, handler, lane, due FROM d`
	)
	// of is the value that belongs to a delivery, from one more array.
	of := func(kind string) string {
		return `(SELECT c.v FROM unnest($1::bigint[], $2::integer[], $5::` + kind + `[]) AS c(event, handler, v)
			WHERE c.event = d.event AND c.handler = d.handler LIMIT 1)`
	}
	reason := `nullif((SELECT c.v FROM unnest($1::bigint[], $2::integer[], $6::text[]) AS c(event, handler, v)
		WHERE c.event = d.event AND c.handler = d.handler LIMIT 1), '')`
	return settleSQL{
		complete:          c.named(gone + told),
		completeKeeping:   c.named(gone + kept + told),
		completeTx:        c.named(goneTx + told),
		completeTxKeeping: c.named(goneTx + kept + told),
		reschedule: c.named(`UPDATE {t:deliveries} d SET gen = gen + 1, attempts = attempts + 1, alone = false, updated = $4,
			due = ` + of("bigint") + `, error = ` + reason + fence + lane),
		release: c.named(`UPDATE {t:deliveries} d SET gen = gen + 1, updated = $4, due = coalesce(nullif(` + of("bigint") + `,
			-9223372036854775808), due), alone = alone OR (SELECT c.v FROM unnest($1::bigint[], $2::integer[], $6::boolean[])
			AS c(event, handler, v) WHERE c.event = d.event AND c.handler = d.handler LIMIT 1)` + fence + lane),
		bury: c.named(`UPDATE {t:deliveries} d SET gen = gen + 1, attempts = attempts + 1, alone = false, updated = $4,
			state = CASE WHEN key IS NOT NULL AND ` + of("boolean") + ` THEN 2 ELSE 3 END, error = ` + reason + fence + lane),
		// Transactions that end deliveries of a key by claim go beside each other:
		// only one delivery of it runs. An operator's, which ends any, goes alone, so
		// that one of two sees what the other one leaves as the first of the key.
		// It also tells whether the statements that follow see what is committed by
		// then: a key whose next delivery was parked meanwhile would stand still.
		shareMoves: `SELECT current_setting('transaction_isolation') = 'read committed' FROM
			(SELECT count(*) FROM (SELECT pg_advisory_xact_lock_shared($1, r) FROM unnest($2::integer[]) r) locked) l`,
		lockMoves: `SELECT count(*) FROM (SELECT pg_advisory_xact_lock($1, r) FROM unnest($2::integer[]) r) locked`,
		// The first unfinished delivery of each key, of each id of its handler,
		// comes back if it was parked. It comes in a statement after the one that
		// moved the key on: then it sees what was parked before that.
		unblock: c.named(`WITH k AS (SELECT DISTINCT coalesce(o.ref, h.ref) AS ref, k.key
				FROM unnest($1::integer[], $2::text[]) AS k(ref, key) JOIN {t:handlers} h ON h.ref = k.ref
				LEFT JOIN {t:handlers} o ON o.grp = h.grp),
			f AS MATERIALIZED (SELECT f.* FROM k CROSS JOIN LATERAL (SELECT d.event, d.handler, d.lane, d.due, d.state
				FROM {t:deliveries} d WHERE d.handler = k.ref AND ` + ofKey + `
				ORDER BY d.key, d.event LIMIT 1) f),
			u AS (UPDATE {t:deliveries} d SET state = 0 WHERE d.event = ANY(ARRAY(SELECT event FROM f WHERE state = 1))
				AND CASE WHEN d.state = 1 THEN (d.event, d.handler) IN (SELECT event, handler FROM f WHERE state = 1) ELSE false END)
			SELECT handler, lane, due FROM f WHERE state < 2`),
	}
}

func checkTokens(op string, leases []store.Lease) error {
	for _, l := range leases {
		if !l.Token.Valid() {
			return store.NewError(op, store.ErrInvalidToken, "", lane.ErrToken)
		}
	}
	return nil
}

// Settle ends claims in one transaction and one round trip; see [store.Settler].
func (s *Store) Settle(
	ctx context.Context, owner string, list []store.Settlement, now time.Time,
) ([]bool, error) {
	const op = "settle deliveries"
	for i := range list {
		if !list[i].Lease.Token.Valid() {
			return nil, store.NewError(op, store.ErrInvalidToken, "", lane.ErrToken)
		}
		if list[i].Action < store.Complete || list[i].Action > store.Bury {
			return nil, invalid(op, "a settlement has no action")
		}
	}
	if err := s.usable(ctx, op); err != nil {
		return nil, err
	}
	ok := make([]bool, len(list))
	w := s.known(owner)
	e := s.ending(w, list, now)
	if e == nil {
		return ok, nil
	}
	err := s.on(ctx, op, func(within context.Context, conn *pgxpool.Conn) error {
		e.reset()
		p := &pipeline{s: s}
		p.begin(conn)
		e.add(p)
		p.commit()
		s.crash("settling")
		// Once it is sent, nobody but the server can stop it.
		if err := ended(ctx, op); err != nil {
			return err
		}
		return p.settled(op, p.run(within, conn))
	})
	if err != nil {
		return nil, err
	}
	s.crash("settled")
	e.conclude()
	for i, index := range e.index {
		ok[index] = e.applied[e.keys[i]]
	}
	return ok, nil
}

// ending ends claims of one owner.
//
// The fence has two parts. The worker knows the lease: as long as the owner's row
// exists, only this instance ends its claims. And the delivery itself is pending
// and has the token's generation, which each statement checks: whoever takes over
// from an owner raises the generation of all that its claim records list.
type ending struct {
	s   *Store
	w   *worker
	now int64
	// owner is who holds the claims. The worker may have another one by the end.
	owner int64
	// index has the places of the settlements in the call, keys their deliveries.
	index []int
	keys  []deliveryKey
	list  []store.Settlement
	runs  []*run
	// moved has the keys of which something ended: the next one may start, or an
	// earlier one that was requeued meanwhile.
	moved   map[orderKey]struct{}
	applied map[deliveryKey]bool
	hints   []seenLane
	// dropped are the claim records that are deleted with it.
	dropped []int64
}

// ending returns nil when the worker holds none of the leases.
func (s *Store) ending(w *worker, list []store.Settlement, now time.Time) *ending {
	if w == nil {
		return nil
	}
	e := &ending{s: s, w: w, now: now.UnixMilli(), moved: make(map[orderKey]struct{})}
	seen := make(map[deliveryKey]struct{}, len(list))
	w.mu.Lock()
	defer w.mu.Unlock()
	e.owner = w.owner
	for i := range list {
		r := w.holds(list[i].Lease)
		d := keyOf(list[i].Lease)
		if _, twice := seen[d]; twice || r == nil {
			continue
		}
		seen[d] = struct{}{}
		e.index, e.keys = append(e.index, i), append(e.keys, d)
		e.list, e.runs = append(e.list, list[i]), append(e.runs, r)
		if r.key != "" {
			e.moved[orderKey{d.handler, r.key}] = struct{}{}
		}
	}
	if len(e.keys) == 0 {
		return nil
	}
	e.reset()
	return e
}

func (e *ending) reset() { e.applied, e.hints = make(map[deliveryKey]bool, len(e.keys)), nil }

// group is what one statement ends: the settlements with one action.
type group struct {
	events         []int64
	handlers, gens []int32
	dues           []int64
	errors         []string
	flags          []bool
}

func (e *ending) group(action store.Action) *group {
	g := &group{}
	for i := range e.list {
		one := &e.list[i]
		if one.Action != action {
			continue
		}
		d := e.keys[i]
		g.events, g.handlers = append(g.events, d.event), append(g.handlers, d.handler)
		g.gens = append(g.gens, int32(one.Lease.Token.Claims)) //nolint:gosec // it was read from an integer
		due := int64(keepDue)
		if !one.DueAt.IsZero() {
			due = one.DueAt.UnixMilli()
		}
		g.dues, g.errors = append(g.dues, due), append(g.errors, one.Error)
		g.flags = append(g.flags, one.Hold && action == store.Bury || one.Alone && action == store.Release)
	}
	return g
}

// add adds a statement for each action that occurs, and what follows from them.
func (e *ending) add(p *pipeline) {
	sql := &e.s.sql.settleSQL
	if len(e.moved) > 0 {
		p.add(sql.shareMoves, noRows, e.s.moveClass(), refsOf(e.moved))
	}
	if g := e.group(store.Complete); len(g.events) > 0 {
		text := sql.complete
		if e.s.cfg.History {
			text = sql.completeKeeping
		}
		p.add(text, e.ended(false), g.events, g.handlers, g.gens, e.now)
	}
	if g := e.group(store.Reschedule); len(g.events) > 0 {
		p.add(sql.reschedule, e.ended(true), g.events, g.handlers, g.gens, e.now, g.dues, g.errors)
	}
	if g := e.group(store.Release); len(g.events) > 0 {
		p.add(sql.release, e.ended(true), g.events, g.handlers, g.gens, e.now, g.dues, g.flags)
	}
	if g := e.group(store.Bury); len(g.events) > 0 {
		p.add(sql.bury, e.ended(false), g.events, g.handlers, g.gens, e.now, g.flags, g.errors)
	}
	if len(e.moved) > 0 {
		refs, keys := keysOf(e.moved)
		p.add(sql.unblock, e.unblocked, refs, keys)
	}
	e.w.mu.Lock()
	e.dropped = e.emptied()
	e.w.mu.Unlock()
	if len(e.dropped) > 0 {
		p.add(e.s.sql.dropClaims, noRows, e.owner, e.dropped)
	}
}

// refsOf returns the handlers of the keys, in order.
func refsOf(moved map[orderKey]struct{}) []int32 {
	refs, _ := keysOf(moved)
	slices.Sort(refs)
	return slices.Compact(refs)
}

func keysOf(moved map[orderKey]struct{}) (refs []int32, keys []string) {
	for k := range moved {
		refs, keys = append(refs, k.handler), append(keys, k.key)
	}
	return refs, keys
}

// ended notes what a statement has ended; back says that it may be claimed again.
func (e *ending) ended(back bool) scanRow {
	return func(scan func(...any) error) (bool, error) {
		var d deliveryKey
		var l seenLane
		if err := scan(&d.event, &d.handler, &l.at.lane, &l.due); err != nil {
			return false, err
		}
		e.applied[d] = true
		if back {
			l.at.handler = d.handler
			e.hints = append(e.hints, l)
		}
		return true, nil
	}
}

// unblocked notes the delivery that is now the first of its key.
func (e *ending) unblocked(scan func(...any) error) (bool, error) {
	var l seenLane
	err := scan(&l.at.handler, &l.at.lane, &l.due)
	e.hints = append(e.hints, l)
	return true, err
}

// emptied returns the claim records of which nothing runs after this, and those of
// before: none of a successor's, whose numbers are others. The caller holds the
// worker's mutex.
func (e *ending) emptied() []int64 {
	if e.w.owner != e.owner {
		return nil
	}
	ends := make(map[int64]int)
	for _, r := range e.runs {
		ends[r.claim]++
	}
	var list []int64
	for claim, n := range ends {
		if n == e.w.claims[claim] {
			list = append(list, claim)
		}
	}
	return append(list, e.w.emptied...)
}

// conclude notes what is committed. What was not applied is over in any case:
// somebody else ended it, or an earlier call whose outcome was unknown.
func (e *ending) conclude() {
	e.w.mu.Lock()
	for i, d := range e.keys {
		e.w.remove(d, e.list[i].Lease.Token)
	}
	e.w.dropped(e.dropped)
	e.w.mu.Unlock()
	for _, l := range e.hints {
		e.s.hint(l.at, l.due)
	}
}

// CompleteTx completes the delivery inside the transaction; see [store.Settler].
func (s *Store) CompleteTx(ctx context.Context, tx store.Tx, owner string, l store.Lease, now time.Time) error {
	const op = "complete in transaction"
	if err := checkTokens(op, []store.Lease{l}); err != nil {
		return err
	}
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	x, t, err := s.sessionOf(ctx, op, tx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.prepare(ctx, op); err != nil {
		return err
	}
	lost := store.NewError(op, store.ErrLeaseLost, "", nil)
	w := s.known(owner)
	e := s.ending(w, []store.Settlement{{Lease: l, Action: store.Complete}}, now)
	if e == nil {
		return lost
	}
	if err := e.inside(ctx, x, t.owner != nil); err != nil {
		if t.owner != nil {
			t.broken = err
		}
		return translate(op, err)
	}
	if !e.applied[e.keys[0]] {
		return cmp.Or(translate(op, x.current(ctx)), error(lost))
	}
	doubt := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.maybe[e.keys[0]] = struct{}{}
	}
	if t.owner == nil {
		doubt() // Nobody tells when the caller commits: the next claim looks.
	}
	x.onCommit(e.conclude)
	t.doubts = append(t.doubts, doubt)
	return nil
}

// commitTime is how long a transaction of ours may wait for its commit when the
// completion is in it.
const commitTime = "10s"

// inside ends the claims in a transaction whose end is not ours; last says that
// nothing comes after that.
func (e *ending) inside(ctx context.Context, x *session, last bool) error {
	g := e.group(store.Complete)
	text := e.s.sql.completeTx
	if e.s.cfg.History {
		text = e.s.sql.completeTxKeeping
	}
	if len(e.moved) > 0 {
		var sees bool
		if _, err := x.row(ctx, e.s.sql.shareMoves, []any{&sees}, e.s.moveClass(), refsOf(e.moved)); err != nil {
			return err
		}
		if !sees {
			return invalid("complete in transaction", "with an ordering key it needs the isolation level READ COMMITTED")
		}
	}
	var idle *string
	if last {
		idle = new(commitTime)
	}
	err := x.rows(ctx, text, e.ended(false), g.events, g.handlers, g.gens, e.now, e.owner, idle)
	if err != nil || len(e.moved) == 0 {
		return err
	}
	refs, keys := keysOf(e.moved)
	return x.rows(ctx, e.s.sql.unblock, e.unblocked, refs, keys)
}
