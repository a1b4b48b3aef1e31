package postgres

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type appendSQL struct {
	addOne, addOneKeyed, addFresh, addFreshKeyed, addMany, addManyFresh, lockKeys, lockBuckets string
	knownEvents, setHandlers, addDeliveries, notify                                            string
}

func newAppendSQL(c Config) appendSQL {
	const (
		// What an append needs: a schema that this library knows, of this database.
		// One whose result is known before fails without it.
		needs   = `WITH ok AS (SELECT 1 FROM {t:meta} WHERE identity = $1::text AND ` + fitting + `)`
		must    = `WITH ok AS (SELECT 1 / count(*)::integer AS one FROM {t:meta} WHERE identity = $1::text AND ` + fitting + `)`
		columns = `(id, type, source, key, created, correlation, causation, headers, payload, handlers)`
		values  = `$3::text, $4::text, $5::text, $6::text, $7::bigint, $8::text, $9::text, $10::text, $11::text, $2::integer[]`
		deliver = `d AS (INSERT INTO {t:deliveries} (event, handler, lane, due, key, updated)
			SELECT e.seq, r, $12::smallint, $13::bigint, $6::text, $14::bigint FROM e, unnest($2::integer[]) r)
			SELECT seq FROM e`
		// The lock comes before the sequence is taken, and lasts until the end of
		// the transaction: so the sequences of a key are in the order of commits.
		lock = `l AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared($15, $16), pg_advisory_xact_lock($17, $18) FROM `
		one  = `e AS (INSERT INTO {t:events} ` + columns + ` SELECT ` + values + ` FROM `
		many = `INSERT INTO {t:events} ` + columns + `
			SELECT id, type, source, key, created, correlation, causation, headers, payload, handlers::integer[]
			FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
				$9::text[], $10::text[], $11::text[]) WITH ORDINALITY
				AS i(id, type, source, key, created, correlation, causation, headers, payload, handlers, n) `
		// An event that can't be there is spared the look for it, which costs the
		// server a third of the insertion.
		unlessKnown = ` ON CONFLICT (id) DO NOTHING`
	)
	return appendSQL{
		addOne:        c.named(needs + `, ` + one + `ok` + unlessKnown + ` RETURNING seq), ` + deliver),
		addOneKeyed:   c.named(needs + `, ` + lock + `ok), ` + one + `l` + unlessKnown + ` RETURNING seq), ` + deliver),
		addFresh:      c.named(must + `, ` + one + `ok WHERE ok.one = 1 RETURNING seq), ` + deliver),
		addFreshKeyed: c.named(must + `, ` + lock + `ok WHERE ok.one = 1), ` + one + `l RETURNING seq), ` + deliver),
		addMany:       c.named(needs + ` ` + many + `WHERE EXISTS (SELECT FROM ok) ORDER BY n` + unlessKnown + ` RETURNING seq, id`),
		// The events got their sequences in the order of the arrays, and all are
		// inserted: so a position in the one is a position in the other.
		addManyFresh: c.named(must + `, e AS (` + many + `WHERE (SELECT one FROM ok) = 1 ORDER BY n RETURNING seq, key, handlers),
			d AS (INSERT INTO {t:deliveries} (event, handler, lane, due, key, updated)
				SELECT e.seq, r, ($12::smallint[])[e.n], ($13::bigint[])[e.n], e.key, $14::bigint
				FROM (SELECT *, row_number() OVER (ORDER BY seq)::integer AS n FROM e) e CROSS JOIN LATERAL unnest(e.handlers) r)
			SELECT count(*) FROM e`),
		lockKeys: `SELECT count(*) FROM (SELECT pg_advisory_xact_lock_shared($1, b), pg_advisory_xact_lock($2, k)
			FROM unnest($3::integer[], $4::integer[]) AS l(b, k)) locked`,
		lockBuckets: `SELECT count(*) FROM (SELECT pg_advisory_xact_lock($1, b) FROM generate_series(0, 255) b) locked`,
		knownEvents: c.named(`SELECT seq, id, coalesce(key, ''), handlers::text FROM {t:events} WHERE id = ANY($1::text[])
			AND EXISTS (SELECT FROM {t:meta} WHERE ` + fitting + `)
			ORDER BY id FOR NO KEY UPDATE`),
		setHandlers: c.named(`UPDATE {t:events} e SET handlers = c.handlers::integer[]
			FROM unnest($1::bigint[], $2::text[]) AS c(seq, handlers) WHERE e.seq = c.seq`),
		addDeliveries: c.named(`INSERT INTO {t:deliveries} (event, handler, lane, due, key, updated)
			SELECT c.*, $6::bigint FROM unnest($1::bigint[], $2::integer[], $3::smallint[], $4::bigint[], $5::text[]) c`),
		notify: `SELECT pg_notify($1, '')`,
	}
}

// Append writes events and their deliveries in the transaction; see
// [store.Appender]. It is one statement when all events are fresh and all handlers
// are known, and two for many events that are new without being called fresh; one
// more locks many keys.
func (s *Store) Append(
	ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time,
) ([]store.Appended, error) {
	const op = "append events"
	if err := s.usable(ctx, op); err != nil {
		return nil, err
	}
	for i := range events {
		if err := checkEvent(op, &events[i]); err != nil {
			return nil, err
		}
	}
	x, t, err := s.sessionOf(ctx, op, tx)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.prepare(ctx, op); err != nil {
		return nil, err
	}
	plan, err := s.planAppend(ctx, op, x, events)
	if err != nil {
		return nil, err
	}
	a := &appending{session: x, now: now.UnixMilli(), identity: *s.identity.Load(), list: make([]store.Appended, len(events))}
	late := t.postpone(a, events, plan)
	if len(events) > 1 && !late {
		err = a.lock(ctx, events) // Of all pieces, in order.
	}
	for start := 0; start < len(events) && err == nil && !late; {
		end := piece(events, start)
		err = a.some(ctx, events[start:end], a.list[start:end], plan.part(start, end))
		start = end
	}
	if err == nil && a.added && s.cfg.NotifyInTransaction {
		_, err = x.exec(ctx, s.sql.notify, s.channel())
	}
	if err != nil {
		if t.owner != nil && !pgconn.SafeToRetry(err) {
			t.broken = err
		}
		return nil, translate(op, err)
	}
	if a.added {
		t.appended(s) //nolint:contextcheck // The notifier outlives the call.
	}
	return a.list, nil
}

func checkEvent(op string, e *store.NewEvent) error {
	if e.ID == "" || e.Type == "" {
		return invalid(op, "an event needs an id and a type")
	}
	for i := range e.Handlers {
		if e.Handlers[i].ID == "" {
			return invalid(op, "a handler needs an id")
		}
	}
	return nil
}

// The most that one statement of an append has.
const (
	pieceEvents = 5000
	pieceBytes  = 32 << 20
)

// piece returns the end of what one statement takes.
func piece(events []store.NewEvent, start int) (end int) {
	size := 0
	for end = start; end < len(events) && end-start < pieceEvents; end++ {
		size += len(events[end].Payload) + len(events[end].Headers) + 512
		if size > pieceBytes && end > start {
			break
		}
	}
	return end
}

// appending is one append.
type appending struct {
	*session
	now      int64
	identity string
	list     []store.Appended
	// added says that there are new deliveries.
	added bool
}

// some appends what one statement takes.
func (a *appending) some(ctx context.Context, events []store.NewEvent, list []store.Appended, plan *appendPlan) error {
	for range attempts {
		err := a.try(ctx, events, list, plan)
		if !errors.Is(err, errPurged) {
			return err
		}
	}
	return store.NewError("append events", store.ErrConflict, "events are purged while they are appended again", nil)
}

// errPurged says that an event that was known is there no more.
var errPurged = errors.New("a known event was purged")

func (a *appending) try(ctx context.Context, events []store.NewEvent, list []store.Appended, plan *appendPlan) error {
	if allFresh(events, plan) {
		return a.fresh(ctx, events, list, plan)
	}
	if len(events) == 1 && !plan.twice[0] {
		done, err := a.one(ctx, &events[0], &list[0], plan.refs[0])
		if err != nil {
			return err
		}
		if done {
			return nil
		}
		return a.extend(ctx, events, list, []int{0}, plan)
	}
	return a.many(ctx, events, list, plan)
}

// one appends a new event. It has done nothing when the event is known.
func (a *appending) one(ctx context.Context, e *store.NewEvent, result *store.Appended, refs []int32) (done bool, err error) {
	list := a.oneStatements(e, refs, a.s.sql.addOne, a.s.sql.addOneKeyed)
	for _, before := range list[:len(list)-1] {
		if _, err := a.exec(ctx, before.text, before.args...); err != nil {
			return false, err
		}
	}
	last := list[len(list)-1]
	var seq int64
	if done, err = a.row(ctx, last.text, []any{&seq}, last.args...); err != nil || !done {
		return false, err
	}
	a.onCommit(func() { a.s.appends.Add(1) })
	*result = a.inserted(e, refs)
	return true, nil
}

// oneStatements append one event. Most often it is one statement, which locks a key
// by itself.
func (a *appending) oneStatements(e *store.NewEvent, refs []int32, plain, keyed string) []statement {
	if refs == nil {
		refs = []int32{}
	}
	args := []any{
		a.identity, refs, e.ID, e.Type, e.Source, orNull(e.Key), e.CreatedAt.UnixMilli(), orNull(e.CorrelationID),
		orNull(e.CausationID), textOrNull(e.Headers), textOrNull(e.Payload), int16(lane.Of(e.Key, e.ID)), e.DueAt.UnixMilli(), a.now,
	}
	if e.Key == "" {
		return []statement{{plain, args}}
	}
	bucket, key := lockOf(e.Key)
	if a.manyKeys(key) {
		return []statement{{a.s.sql.lockBuckets, []any{a.s.bucketClass()}}, {plain, args}}
	}
	return []statement{{keyed, append(args, a.s.bucketClass(), bucket, a.s.keyClass(), key)}}
}

// manyKeys counts the keys of the transaction, and reports whether they are too many
// to be locked each for itself.
func (a *appending) manyKeys(keys ...int32) bool {
	if a.keys == nil {
		a.keys = make(map[int32]struct{})
	}
	for _, key := range keys {
		if len(a.keys) <= mostKeys {
			a.keys[key] = struct{}{}
		}
	}
	return len(a.keys) > mostKeys
}

// inserted notes the deliveries of an event that is new.
func (a *appending) inserted(e *store.NewEvent, refs []int32) store.Appended {
	a.noteDeliveries(len(refs))
	a.hintAll(refs, lane.Of(e.Key, e.ID), e.DueAt.UnixMilli())
	return store.Appended{Inserted: true, Deliveries: len(refs)}
}

func (a *appending) hintAll(refs []int32, number uint8, due int64) {
	a.onCommit(func() {
		for _, ref := range refs {
			a.s.hint(slice{ref, number}, due)
		}
	})
}

func (a *appending) noteDeliveries(n int) { a.added = a.added || n > 0 }

// many appends any number of events, new or known, whose keys are locked.
func (a *appending) many(ctx context.Context, events []store.NewEvent, list []store.Appended, plan *appendPlan) error {
	inserted := make(map[string]int64, len(events))
	err := a.rows(ctx, a.s.sql.addMany, func(scan func(...any) error) (bool, error) {
		var seq int64
		var id string
		err := scan(&seq, &id)
		inserted[id] = seq
		return true, err
	}, plan.args(a, events)...)
	if err != nil {
		return err
	}
	a.onCommit(func() { a.s.appends.Add(int64(len(inserted))) })
	var known []int
	var more extension
	for i := range events {
		id := events[i].ID
		seq, ok := inserted[id]
		if !ok || plan.twice[i] {
			known = append(known, i)
			continue
		}
		refs := plan.refs[i]
		list[i] = a.inserted(&events[i], refs)
		more.deliver(seq, events[i].Key, refs, lane.Of(events[i].Key, id), events[i].DueAt.UnixMilli())
	}
	if err := more.write(ctx, a); err != nil {
		return err
	}
	return a.extend(ctx, events, list, known, plan)
}

// appendPlan says which handlers get each event.
type appendPlan struct {
	refs [][]int32
	sets [][][]int32
	// twice marks the events whose id came before in the same call.
	twice []bool
}

func (p *appendPlan) part(start, end int) *appendPlan {
	return &appendPlan{refs: p.refs[start:end], sets: p.sets[start:end], twice: p.twice[start:end]}
}

func (s *Store) planAppend(ctx context.Context, op string, x *session, events []store.NewEvent) (*appendPlan, error) {
	p := &appendPlan{refs: make([][]int32, len(events)), sets: make([][][]int32, len(events)), twice: make([]bool, len(events))}
	var unknown []store.Handler
	for i := range events {
		for _, h := range events[i].Handlers {
			if !s.knowsSet(h) {
				unknown = append(unknown, h)
			}
		}
	}
	if err := x.learnSets(ctx, unknown); err != nil {
		return nil, translate(op, err)
	}
	if _, err := s.needSets(ctx, op, unknown); err != nil {
		return nil, err
	}
	seen := make(map[string]struct{}, len(events))
	for i := range events {
		if len(events) > 1 {
			_, p.twice[i] = seen[events[i].ID]
			seen[events[i].ID] = struct{}{}
		}
		sets, err := s.needSets(ctx, op, events[i].Handlers)
		if err != nil {
			return nil, err
		}
		p.sets[i] = sets
		for _, set := range sets {
			if !overlap(p.refs[i], set) {
				p.refs[i] = append(p.refs[i], set[0])
			}
		}
	}
	return p, nil
}

func (p *appendPlan) args(a *appending, events []store.NewEvent) []any {
	n := len(events)
	ids, types, sources := make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	keys, correlations, causations := newNullable(n), newNullable(n), newNullable(n)
	headers, payloads := newNullable(n), newNullable(n)
	created, handlers := make([]int64, 0, n), make([]string, 0, n)
	for i := range events {
		if p.twice[i] {
			continue
		}
		e := &events[i]
		ids, types, sources = append(ids, e.ID), append(types, e.Type), append(sources, e.Source)
		keys.add(e.Key, e.Key != "")
		correlations.add(e.CorrelationID, e.CorrelationID != "")
		causations.add(e.CausationID, e.CausationID != "")
		headers.add(string(e.Headers), e.Headers != nil)
		payloads.add(string(e.Payload), e.Payload != nil)
		created, handlers = append(created, e.CreatedAt.UnixMilli()), append(handlers, numberArray(p.refs[i]))
	}
	return []any{
		a.identity, ids, types, sources, keys.array(), created, correlations.array(), causations.array(),
		headers.array(), payloads.array(), handlers,
	}
}

// extend adds deliveries to events that exist, for handlers that they never had
// one for.
func (a *appending) extend(
	ctx context.Context, events []store.NewEvent, list []store.Appended, known []int, plan *appendPlan,
) error {
	if len(known) == 0 {
		return nil
	}
	found, err := a.known(ctx, events, known)
	if err != nil {
		return err
	}
	var more extension
	for _, i := range known {
		e := found[events[i].ID]
		if e == nil && len(events) == 1 {
			return a.missing(ctx)
		}
		if e == nil {
			one := plan.part(i, i+1)
			one.twice = []bool{false}
			if err := a.some(ctx, events[i:i+1], list[i:i+1], one); err != nil {
				return err
			}
			continue
		}
		var refs []int32
		for _, set := range plan.sets[i] {
			if !overlap(e.had, set) {
				e.had = append(e.had, set[0])
				refs = append(refs, set[0])
			}
		}
		list[i] = store.Appended{Deliveries: len(refs)}
		if len(refs) == 0 {
			continue
		}
		number, due := lane.Of(e.key, events[i].ID), events[i].DueAt.UnixMilli()
		more.add(e, refs, number, due)
		a.noteDeliveries(len(refs))
		a.hintAll(refs, number, due)
	}
	return more.write(ctx, a)
}

// extension is what is added to events that exist: by now, or from before.
type extension struct {
	changed []*knownEvent
	// One entry for each delivery.
	events, dues []int64
	refs         []int32
	lanes        []int16
	keys         []*string
}

func (m *extension) add(e *knownEvent, refs []int32, number uint8, due int64) {
	if !e.changed {
		e.changed = true
		m.changed = append(m.changed, e)
	}
	m.deliver(e.seq, e.key, refs, number, due)
}

func (m *extension) deliver(seq int64, key string, refs []int32, number uint8, due int64) {
	for _, ref := range refs {
		m.events, m.refs, m.dues = append(m.events, seq), append(m.refs, ref), append(m.dues, due)
		m.lanes, m.keys = append(m.lanes, int16(number)), append(m.keys, textPointer(key))
	}
}

func (m *extension) write(ctx context.Context, a *appending) error {
	if len(m.events) == 0 {
		return nil
	}
	if len(m.changed) > 0 {
		seqs, handlers := make([]int64, len(m.changed)), make([]string, len(m.changed))
		for i, e := range m.changed {
			seqs[i], handlers[i] = e.seq, numberArray(e.had)
		}
		if _, err := a.exec(ctx, a.s.sql.setHandlers, seqs, handlers); err != nil {
			return err
		}
	}
	_, err := a.exec(ctx, a.s.sql.addDeliveries, m.events, m.refs, m.lanes, m.dues, m.keys, a.now)
	return err
}

// knownEvent is an event that exists.
type knownEvent struct {
	seq int64
	key string
	had []int32
	// changed says that there are more now.
	changed bool
}

func (a *appending) known(ctx context.Context, events []store.NewEvent, which []int) (map[string]*knownEvent, error) {
	ids := make([]string, len(which))
	for i, n := range which {
		ids[i] = events[n].ID
	}
	found := make(map[string]*knownEvent, len(ids))
	err := a.rows(ctx, a.s.sql.knownEvents, func(scan func(...any) error) (bool, error) {
		var e knownEvent
		var id, handlers string
		if err := scan(&e.seq, &id, &e.key, &handlers); err != nil {
			return false, err
		}
		var err error
		e.had, err = parseArray(handlers)
		found[id] = &e
		return true, err
	}, ids)
	return found, err
}

// missing says why an event neither could be inserted nor is there.
func (a *appending) missing(ctx context.Context) error {
	if err := a.current(ctx); err != nil {
		return err
	}
	var id string
	if _, err := a.row(ctx, a.s.sql.identify, []any{&id}); err != nil {
		return err
	}
	if id != a.identity {
		return store.NewError("append events", store.ErrForeignTx, "", nil)
	}
	return errPurged
}

// fewKeys is up to how many keys of one append, and mostKeys of all of one
// transaction, are locked each for itself: each costs two entries in the server's
// lock table, which has 64 for each connection.
const (
	fewKeys  = 32
	mostKeys = 64
)

// lock locks the keys of the events. An append of many keys locks all buckets of
// keys instead, and so waits for every other append with a key.
func (a *appending) lock(ctx context.Context, events []store.NewEvent) error {
	text, args := a.lockStatement(events)
	if text == "" {
		return nil
	}
	var n int64
	_, err := a.row(ctx, text, []any{&n}, args...)
	return err
}

// lockStatement returns no text when there is no key.
func (a *appending) lockStatement(events []store.NewEvent) (text string, args []any) {
	var keys []int32
	seen := make(map[int32]struct{})
	for i := range events {
		if events[i].Key == "" {
			continue
		}
		_, key := lockOf(events[i].Key)
		if _, ok := seen[key]; ok {
			continue
		}
		seen[key] = struct{}{}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return "", nil
	}
	if len(keys) > fewKeys || a.manyKeys(keys...) {
		return a.s.sql.lockBuckets, []any{a.s.bucketClass()}
	}
	// The bucket is the first part of the key, so buckets are in order, too.
	slices.SortFunc(keys, func(a, b int32) int { return cmp.Compare(uint32(a), uint32(b)) }) //nolint:gosec // only their order counts
	buckets := make([]int32, len(keys))
	for i, key := range keys {
		buckets[i] = bucketOf(key)
	}
	return a.s.sql.lockKeys, []any{a.s.bucketClass(), a.s.keyClass(), buckets, keys}
}

// lockOf returns the numbers that an ordering key is locked by. Two keys may have
// the same ones: then they wait for each other.
func lockOf(key string) (bucket, number int32) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // It returns no error.
	number = int32(h.Sum32())   //nolint:gosec // any 32 bits will do
	return bucketOf(number), number
}

func bucketOf(number int32) int32 { return int32(uint32(number) >> 24) } //nolint:gosec // below 256

// Advisory locks have two numbers; the first tells the stores of a database, and
// the application, apart.
func (s *Store) bucketClass() int32 { return classOf(s.key + " bucket") }
func (s *Store) keyClass() int32    { return classOf(s.key + " key") }

func (s *Store) moveClass() int32 { return classOf(s.key + " move") }
func (s *Store) setClass() int32  { return classOf(s.key + " set") }

func classOf(text string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // It returns no error.
	return int32(h.Sum32())      //nolint:gosec // any 32 bits will do
}

func overlap(a, b []int32) bool {
	return slices.ContainsFunc(b, func(n int32) bool { return slices.Contains(a, n) })
}

// orNull stores an absent text as NULL.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func textOrNull(text []byte) any {
	if text == nil {
		return nil
	}
	return string(text)
}

func textPointer(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
