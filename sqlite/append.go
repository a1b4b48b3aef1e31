package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type appendSQL struct {
	addFirst, addEvent, addDelivery, knownEvent, setHandlers, save, undo, dropSave string
}

func newAppendSQL(q func(string) string) appendSQL {
	return appendSQL{
		// The first event of an append takes the next sequence, and checks the
		// schema: with another one than ?1 it fails, as a text is no sequence.
		addFirst: q(`INSERT INTO {p}events (seq, id, type, source, key, created, handlers, total,
			correlation, causation, headers, payload)
			VALUES (CASE WHEN (SELECT value FROM {p}meta WHERE key = 'schema') = ?1
				THEN max(ifnull((SELECT max(seq) FROM {p}events), 0),
					ifnull((SELECT value FROM {p}meta WHERE key = 'sequence'), 0)) + 1
				ELSE 'another schema' END,
				?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO NOTHING`),
		addEvent: q(`INSERT INTO {p}events (seq, id, type, source, key, created, handlers, total,
			correlation, causation, headers, payload)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO NOTHING`),
		addDelivery: q(`INSERT INTO {p}deliveries (event, handler, lane, due, key, updated)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6)`),
		knownEvent:  q(`SELECT seq, ifnull(key, ''), handlers FROM {p}events WHERE id = ?1`),
		setHandlers: q(`UPDATE {p}events SET handlers = ?2, total = ?3 WHERE seq = ?1`),
		save:        q(`SAVEPOINT {p}whole`),
		undo:        q(`ROLLBACK TO {p}whole`),
		dropSave:    q(`RELEASE {p}whole`),
	}
}

// Append writes events and their deliveries in the transaction; see
// [store.Appender]. An append that fails leaves nothing of it in the
// transaction: one that the caller opened may be continued, and one of the
// store's own then refuses to commit.
func (s *Store) Append(
	ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time,
) ([]store.Appended, error) {
	const op = "append events"
	if err := ended(ctx, op); err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.ID == "" || e.Type == "" {
			return nil, invalid(op, "an event needs an id and a type")
		}
		for _, h := range e.Handlers {
			if h.ID == "" {
				return nil, invalid(op, "a handler needs an id")
			}
		}
	}
	x, t, err := s.openSession(ctx, op, tx)
	if err != nil {
		return nil, err
	}
	if err := s.learnRefs(ctx, op, events); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owner == nil {
		s.changes.Add(1) // Nobody tells when the caller commits.
	}
	var list []store.Appended
	err = x.whole(still(ctx), t, func(ctx context.Context) (err error) {
		a := &appending{session: x, now: now.UnixMilli()}
		list, err = a.all(ctx, events)
		return err
	})
	return list, s.translate(op, err)
}

// whole runs fn inside of tx so that it is done whole or not at all: by a
// savepoint in a transaction of a caller, who may go on after an error, and by
// a refusal to commit in one of the store's own.
func (x *session) whole(ctx context.Context, t *transaction, fn func(ctx context.Context) error) error {
	if t.owner != nil {
		err := fn(ctx)
		if err != nil {
			t.broken = err
		}
		return err
	}
	if _, err := x.exec(ctx, x.s.sql.save); err != nil {
		return err
	}
	err := fn(ctx)
	if err != nil {
		_, undone := x.exec(ctx, x.s.sql.undo)
		err = errors.Join(err, undone)
	}
	_, released := x.exec(ctx, x.s.sql.dropSave)
	return errors.Join(err, released)
}

// appending is one append.
type appending struct {
	*session
	now int64
	// next is the sequence of the next event, or 0 before the first was added.
	next int64
}

func (a *appending) all(ctx context.Context, events []store.NewEvent) ([]store.Appended, error) {
	if len(events) == 0 {
		return nil, nil
	}
	list := make([]store.Appended, len(events))
	for i := range events {
		var err error
		if list[i], err = a.one(ctx, &events[i]); err != nil {
			return nil, a.schemaError(ctx, err)
		}
	}
	if a.next == 0 {
		return list, nil // all were known
	}
	last := a.next - 1
	a.onCommit(func() {
		for old := a.s.appended.Load(); old < last && !a.s.appended.CompareAndSwap(old, last); {
			old = a.s.appended.Load()
		}
	})
	return list, nil
}

func (a *appending) one(ctx context.Context, e *store.NewEvent) (store.Appended, error) {
	var refs []int64
	for i := range e.Handlers {
		set, err := a.needSet(ctx, e.Handlers[i])
		if err != nil {
			return store.Appended{}, err
		}
		if !overlap(refs, set) {
			refs = append(refs, set[0])
		}
	}
	handlers := numberList(refs)
	text, first := a.s.sql.addEvent, a.next
	if a.next == 0 {
		text, first = a.s.sql.addFirst, schemaVersion
	}
	seq, added, err := a.insert(ctx, text, first, e.ID, e.Type, e.Source, orNull(e.Key), e.CreatedAt.UnixMilli(),
		handlers, len(refs), orNull(e.CorrelationID), orNull(e.CausationID), e.Headers, e.Payload)
	if err != nil {
		return store.Appended{}, err
	}
	if added == 0 {
		n, err := a.extend(ctx, e)
		return store.Appended{Deliveries: n}, err
	}
	a.next = seq + 1
	return store.Appended{Inserted: true, Deliveries: len(refs)}, a.deliver(ctx, seq, e.Key, e, refs)
}

// schemaError returns what is wrong with the schema, if that explains the error.
func (a *appending) schemaError(ctx context.Context, err error) error {
	if code, ok := primaryCode(err); ok && (code == codeError || code == codeMismatch) {
		if wrong := a.s.current(ctx, a.session); wrong != nil {
			return wrong
		}
	}
	return err
}

// extend adds deliveries to an event that exists, for handlers that it never
// had one for.
func (a *appending) extend(ctx context.Context, e *store.NewEvent) (int, error) {
	var seq int64
	var key, handlers string
	if _, err := a.row(ctx, a.s.sql.knownEvent, []any{&seq, &key, &handlers}, e.ID); err != nil {
		return 0, err
	}
	var had []int64
	if err := json.Unmarshal([]byte(handlers), &had); err != nil {
		return 0, err
	}
	var refs []int64
	for i := range e.Handlers {
		set, err := a.needSet(ctx, e.Handlers[i])
		if err != nil {
			return 0, err
		}
		if !overlap(had, set) {
			had = append(had, set[0])
			refs = append(refs, set[0])
		}
	}
	if len(refs) == 0 {
		return 0, nil
	}
	if _, err := a.exec(ctx, a.s.sql.setHandlers, seq, numberList(had), len(had)); err != nil {
		return 0, err
	}
	return len(refs), a.deliver(ctx, seq, key, e, refs)
}

func (a *appending) deliver(ctx context.Context, seq int64, key string, e *store.NewEvent, refs []int64) error {
	number, due := lane.Of(key, e.ID), e.DueAt.UnixMilli()
	for _, ref := range refs {
		if _, err := a.exec(ctx, a.s.sql.addDelivery, seq, ref, number, due, orNull(key), a.now); err != nil {
			return err
		}
	}
	a.onCommit(func() {
		for _, ref := range refs {
			a.s.hint(slice{ref, number}, due)
		}
	})
	return nil
}

func overlap(a, b []int64) bool {
	return slices.ContainsFunc(b, func(n int64) bool { return slices.Contains(a, n) })
}

func numberList(list []int64) string {
	text := append(make([]byte, 0, 8*len(list)), '[')
	for i, n := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(append(text, ']'))
}

// orNull stores an absent text as NULL.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func parseNumbers(text string) (list []int64, err error) {
	err = json.Unmarshal([]byte(text), &list)
	return list, err
}
