package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type appendSQL struct {
	nextSequence, addEvent, addDelivery, knownEvent, setHandlers, save, undo, dropSave string
}

func newAppendSQL(q func(string) string) appendSQL {
	return appendSQL{
		nextSequence: q(`SELECT max(ifnull((SELECT max(seq) FROM {p}events), 0),
			ifnull((SELECT value FROM {p}meta WHERE key = 'sequence'), 0)) + 1`),
		addEvent: q(`INSERT INTO {p}events (seq, id, type, source, key, created, handlers, total,
			correlation, causation, headers, payload)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO NOTHING`),
		addDelivery: q(`INSERT INTO {p}deliveries (event, handler, lane, due, key, updated)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6)`),
		knownEvent:  q(`SELECT seq, ifnull(key, ''), handlers FROM {p}events WHERE id = ?1`),
		setHandlers: q(`UPDATE {p}events SET handlers = ?2, total = ?3 WHERE seq = ?1`),
		save:        q(`SAVEPOINT {p}append`),
		undo:        q(`ROLLBACK TO {p}append`),
		dropSave:    q(`RELEASE {p}append`),
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
	x, t, err := s.sessionOf(ctx, op, tx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx = still(ctx)
	a := &appending{session: x, now: now.UnixMilli()}
	if t.owner != nil {
		list, err := a.all(ctx, events)
		if err != nil {
			t.broken = err
		}
		return list, s.translate(op, err)
	}
	s.changes.Add(1) // Nobody tells when the caller commits.
	if _, err := x.exec(ctx, s.sql.save); err != nil {
		return nil, s.translate(op, err)
	}
	list, err := a.all(ctx, events)
	if err != nil {
		_, undone := x.exec(ctx, s.sql.undo)
		x.refs = nil
		err = errors.Join(err, undone)
	}
	_, released := x.exec(ctx, s.sql.dropSave)
	return list, s.translate(op, errors.Join(err, released))
}

// appending is one append.
type appending struct {
	*session
	now  int64
	next int64
}

func (a *appending) all(ctx context.Context, events []store.NewEvent) ([]store.Appended, error) {
	if len(events) == 0 {
		return nil, nil
	}
	if _, err := a.row(ctx, a.s.sql.nextSequence, []any{&a.next}); err != nil {
		return nil, err
	}
	list := make([]store.Appended, len(events))
	for i := range events {
		var err error
		if list[i], err = a.one(ctx, &events[i]); err != nil {
			return nil, err
		}
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
	handlers, err := numberList(refs)
	if err != nil {
		return store.Appended{}, err
	}
	added, err := a.exec(ctx, a.s.sql.addEvent, a.next, e.ID, e.Type, e.Source, orNull(e.Key), e.CreatedAt.UnixMilli(),
		handlers, len(refs), orNull(e.CorrelationID), orNull(e.CausationID), e.Headers, e.Payload)
	if err != nil {
		return store.Appended{}, err
	}
	if added == 0 {
		n, err := a.extend(ctx, e)
		return store.Appended{Deliveries: n}, err
	}
	seq := a.next
	a.next++
	return store.Appended{Inserted: true, Deliveries: len(refs)}, a.deliver(ctx, seq, e.Key, e, refs)
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
	handlers, err := numberList(had)
	if err != nil {
		return 0, err
	}
	if _, err := a.exec(ctx, a.s.sql.setHandlers, seq, handlers, len(had)); err != nil {
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

func numberList(list []int64) (string, error) {
	if len(list) == 0 {
		return "[]", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
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
