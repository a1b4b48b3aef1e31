package sqlite

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/relaybus-go/relaybus/store"
)

type handlerSQL struct {
	handlerRef, addHandler, handlerGroup, handlerName, getGroup, joinGroup, mergeGroup, pausedRefs string
}

func newHandlerSQL(q func(string) string) handlerSQL {
	return handlerSQL{
		handlerRef:  q(`SELECT ref FROM {p}handlers WHERE id = ?1`),
		handlerName: q(`SELECT id FROM {p}handlers WHERE ref = ?1`),
		addHandler:  q(`INSERT INTO {p}handlers (id) VALUES (?1)`),
		handlerGroup: q(`SELECT ?1 UNION SELECT ref FROM {p}handlers INDEXED BY {p}handlers_grp
			WHERE grp = (SELECT grp FROM {p}handlers WHERE ref = ?1) AND grp IS NOT NULL`),
		getGroup:  q(`SELECT ifnull(grp, 0) FROM {p}handlers WHERE ref = ?1`),
		joinGroup: q(`UPDATE {p}handlers SET grp = ?2 WHERE ref = ?1`),
		mergeGroup: q(`UPDATE {p}handlers INDEXED BY {p}handlers_grp SET grp = ?2
			WHERE grp = ?1 AND grp IS NOT NULL`),
		pausedRefs: q(`SELECT ref FROM {p}handlers INDEXED BY {p}handlers_paused WHERE paused = 1`),
	}
}

// directory remembers the numbers under which handlers are stored. It only has
// what is committed: a number that was given out in a transaction that rolled
// back may be given to another handler.
type directory struct {
	mu   sync.RWMutex
	refs map[string]int64
	ids  map[int64]string
	// sets are the alias sets that are known to be joined in the database.
	sets map[string]struct{}
}

func newDirectory() *directory {
	return &directory{
		refs: make(map[string]int64),
		ids:  make(map[int64]string),
		sets: make(map[string]struct{}),
	}
}

func (d *directory) ref(id string) (int64, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	ref, ok := d.refs[id]
	return ref, ok
}

func (d *directory) id(ref int64) (string, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	id, ok := d.ids[ref]
	return id, ok
}

func (d *directory) add(id string, ref int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refs[id] = ref
	d.ids[ref] = id
}

func (d *directory) joined(set string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	_, ok := d.sets[set]
	return ok
}

func (d *directory) join(set string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sets[set] = struct{}{}
}

// findRef returns the number of a handler; ok is false when it has none.
func (x *session) findRef(ctx context.Context, id string) (ref int64, ok bool, err error) {
	if ref, ok := x.s.handlers.ref(id); ok {
		return ref, true, nil
	}
	found, err := x.row(ctx, x.s.sql.handlerRef, []any{&ref}, id)
	if err == nil && found {
		x.noteRef(id, ref)
	}
	return ref, found, err
}

// needRef returns the number of a handler, and gives it one.
func (x *session) needRef(ctx context.Context, id string) (int64, error) {
	ref, ok, err := x.findRef(ctx, id)
	if err != nil || ok {
		return ref, err
	}
	result, err := x.tx.ExecContext(ctx, x.s.sql.addHandler, id)
	if err != nil {
		return 0, err
	}
	if ref, err = result.LastInsertId(); err != nil {
		return 0, err
	}
	x.noteRef(id, ref)
	return ref, nil
}

// noteRef remembers a number once it is known to be committed. In a transaction
// into which a caller has a hand it is not remembered at all: he may roll a part
// of it back.
func (x *session) noteRef(id string, ref int64) {
	switch {
	case x.snapshot:
		x.s.handlers.add(id, ref)
	case x.private:
		x.onCommit(func() { x.s.handlers.add(id, ref) })
	}
}

// setName names an alias set, whatever the order of its ids.
func setName(h store.Handler) string {
	ids := append([]string{h.ID}, h.Aliases...)
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), "\x00")
}

// needSet notes in the database that the ids are one handler, and returns
// their numbers.
func (x *session) needSet(ctx context.Context, h store.Handler) ([]int64, error) {
	var refs []int64
	for _, id := range append([]string{h.ID}, h.Aliases...) {
		ref, err := x.needRef(ctx, id)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	name := setName(h)
	if len(refs) < 2 || x.s.handlers.joined(name) {
		return refs, nil
	}
	group := slices.Min(refs)
	for _, ref := range refs {
		var old int64
		if _, err := x.row(ctx, x.s.sql.getGroup, []any{&old}, ref); err != nil {
			return nil, err
		}
		text, of := x.s.sql.joinGroup, ref
		if old != 0 {
			text, of = x.s.sql.mergeGroup, old
		}
		if old == group {
			continue
		}
		if _, err := x.exec(ctx, text, of, group); err != nil {
			return nil, err
		}
	}
	x.groups = nil
	if x.private {
		x.onCommit(func() { x.s.handlers.join(name) })
	}
	return refs, nil
}

// group returns the numbers of all ids of a handler.
func (x *session) group(ctx context.Context, ref int64) (refs []int64, err error) {
	if refs, ok := x.groups[ref]; ok {
		return refs, nil
	}
	defer func() {
		if err == nil {
			if x.groups == nil {
				x.groups = make(map[int64][]int64)
			}
			x.groups[ref] = refs
		}
	}()
	err = x.rows(ctx, x.s.sql.handlerGroup, func(scan func(...any) error) (bool, error) {
		var one int64
		err := scan(&one)
		refs = append(refs, one)
		return true, err
	}, ref)
	return refs, err
}

// learnRefs reads the numbers of handlers that an append will need and that are
// committed.
func (s *Store) learnRefs(ctx context.Context, op string, events []store.NewEvent) error {
	var missing map[string]struct{}
	for i := range events {
		for k := range events[i].Handlers {
			id := events[i].Handlers[k].ID
			if _, ok := s.handlers.ref(id); ok {
				continue
			}
			if missing == nil {
				missing = make(map[string]struct{})
			}
			missing[id] = struct{}{}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return s.read(ctx, op, func(ctx context.Context, x *session) error {
		for id := range missing {
			if _, _, err := x.findRef(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// handlerID returns the id of a number that the database has.
func (x *session) handlerID(ctx context.Context, ref int64) (string, error) {
	if id, ok := x.s.handlers.id(ref); ok {
		return id, nil
	}
	var id string
	_, err := x.row(ctx, x.s.sql.handlerName, []any{&id}, ref)
	return id, err
}
