package postgres

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/relaybus-go/relaybus/store"
)

type handlerSQL struct {
	refs, groups, addHandlers, lockSets, members, joinGroup, addLanes, special string
}

func newHandlerSQL(c Config) handlerSQL {
	return handlerSQL{
		refs:   c.named(`SELECT ref, id FROM {t:handlers} WHERE id = ANY($1::text[])`),
		groups: c.named(`SELECT ref, id, coalesce(grp, 0) FROM {t:handlers} WHERE id = ANY($1::text[])`),
		addHandlers: c.named(`INSERT INTO {t:handlers} (id) SELECT unnest($1::text[]) ORDER BY 1
			ON CONFLICT (id) DO NOTHING`),
		// Sets that overlap are joined one after the other.
		lockSets: `SELECT pg_advisory_xact_lock($1, 0)`,
		// The refs of all ids of the handlers.
		members: c.named(`SELECT ref FROM {t:handlers} WHERE ref = ANY($1::integer[])
			OR grp IN (SELECT grp FROM {t:handlers} WHERE ref = ANY($1::integer[]) AND grp IS NOT NULL) ORDER BY ref`),
		joinGroup: c.named(`UPDATE {t:handlers} SET grp = $2 WHERE ref = ANY($1::integer[]) AND grp IS DISTINCT FROM $2`),
		addLanes: c.named(`INSERT INTO {t:lanes} (handler, lane) SELECT r, n FROM unnest($1::integer[]) r, generate_series(0, 255) n
			ON CONFLICT DO NOTHING`),
		special: c.named(`SELECT ref, id, coalesce(grp, 0), paused FROM {t:handlers} WHERE paused OR grp IS NOT NULL`),
	}
}

// directory remembers the numbers under which handlers are stored. It only has
// what is committed.
type directory struct {
	mu   sync.RWMutex
	refs map[string]int32
	ids  map[int32]string
	// lanes are the handlers whose lanes are known to have rows.
	lanes map[int32]struct{}
	// sets are the alias sets that are known to be joined in the database.
	sets map[string]struct{}
}

func newDirectory() *directory {
	return &directory{
		refs:  make(map[string]int32),
		ids:   make(map[int32]string),
		lanes: make(map[int32]struct{}),
		sets:  make(map[string]struct{}),
	}
}

func (d *directory) ref(id string) (int32, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	ref, ok := d.refs[id]
	return ref, ok
}

func (d *directory) id(ref int32) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.ids[ref]
}

func (d *directory) add(id string, ref int32) {
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

// withoutLanes returns those of which it is not known that their lanes have rows.
func (d *directory) withoutLanes(refs []int32) (missing []int32) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, ref := range refs {
		if _, ok := d.lanes[ref]; !ok {
			missing = append(missing, ref)
		}
	}
	return missing
}

func (d *directory) addLanes(refs []int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ref := range refs {
		d.lanes[ref] = struct{}{}
	}
}

// findRefs reads the numbers of handlers that have one.
func (x *session) findRefs(ctx context.Context, ids []string) (map[string]int32, error) {
	refs := make(map[string]int32, len(ids))
	err := x.rows(ctx, x.s.sql.refs, func(scan func(...any) error) (bool, error) {
		var ref int32
		var id string
		err := scan(&ref, &id)
		refs[id] = ref
		return true, err
	}, ids)
	return refs, err
}

// needRefs returns the numbers of handlers, and gives one to those without.
func (x *session) needRefs(ctx context.Context, ids []string) (map[string]int32, error) {
	refs, err := x.findRefs(ctx, ids)
	if err != nil || len(refs) == len(ids) {
		return refs, err
	}
	var missing []string
	for _, id := range ids {
		if _, ok := refs[id]; !ok {
			missing = append(missing, id)
		}
	}
	if _, err := x.exec(ctx, x.s.sql.addHandlers, missing); err != nil {
		return nil, err
	}
	return x.findRefs(ctx, ids)
}

// setName names an alias set, whatever the order of its ids.
func setName(h store.Handler) string { return strings.Join(idsOf(h), "\x00") }

func idsOf(handlers ...store.Handler) []string {
	var ids []string
	for _, h := range handlers {
		ids = append(append(ids, h.ID), h.Aliases...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// needSets gives handlers their numbers, and notes in the database which ids are
// one handler. It returns the numbers of each handler, the first of which is that
// of its id. What is not known yet is committed on a connection of the store's own:
// inside of the caller's transaction it would hold up everybody else who needs the
// same number.
func (s *Store) needSets(ctx context.Context, op string, handlers []store.Handler) ([][]int32, error) {
	known := true
	for _, h := range handlers {
		known = known && s.knowsSet(h)
	}
	if !known {
		err := s.write(ctx, op, func(ctx context.Context, x *session) error { return x.addSets(ctx, handlers) })
		if err != nil {
			return nil, err
		}
	}
	sets := make([][]int32, len(handlers))
	for i, h := range handlers {
		for _, id := range append([]string{h.ID}, h.Aliases...) {
			if ref, _ := s.handlers.ref(id); !slices.Contains(sets[i], ref) {
				sets[i] = append(sets[i], ref)
			}
		}
	}
	return sets, nil
}

// learnSets looks up handlers inside of a caller's transaction: as the store never
// writes them in one, what that sees of them is committed. So no second connection
// is needed, which there may be none of while callers hold all that the server or a
// pooler gives.
func (x *session) learnSets(ctx context.Context, handlers []store.Handler) error {
	if len(handlers) == 0 {
		return nil
	}
	refs, groups := make(map[string]int32), make(map[string]int32)
	err := x.rows(ctx, x.s.sql.groups, func(scan func(...any) error) (bool, error) {
		var ref, group int32
		var id string
		err := scan(&ref, &id, &group)
		refs[id], groups[id] = ref, group
		return true, err
	}, idsOf(handlers...))
	if err != nil {
		return err
	}
	for id, ref := range refs {
		x.s.handlers.add(id, ref)
	}
	for _, h := range handlers {
		group := groups[h.ID]
		apart := func(id string) bool { return groups[id] != group }
		if group != 0 && !slices.ContainsFunc(h.Aliases, apart) {
			x.s.handlers.join(setName(h))
		}
	}
	return nil
}

func (s *Store) knowsSet(h store.Handler) bool {
	if _, ok := s.handlers.ref(h.ID); !ok {
		return false
	}
	return len(h.Aliases) == 0 || s.handlers.joined(setName(h))
}

func (x *session) addSets(ctx context.Context, handlers []store.Handler) error {
	if slices.ContainsFunc(handlers, func(h store.Handler) bool { return len(h.Aliases) > 0 }) {
		if _, err := x.exec(ctx, x.s.sql.lockSets, x.s.setClass()); err != nil {
			return err
		}
	}
	refs, err := x.needRefs(ctx, idsOf(handlers...))
	if err != nil {
		return err
	}
	x.onCommit(func() {
		for id, ref := range refs {
			x.s.handlers.add(id, ref)
		}
	})
	for _, h := range handlers {
		name := setName(h)
		if len(h.Aliases) == 0 || x.s.handlers.joined(name) {
			continue
		}
		var set []int32
		for _, id := range idsOf(h) {
			set = append(set, refs[id])
		}
		all, err := x.members(ctx, set)
		if err != nil {
			return err
		}
		if _, err := x.exec(ctx, x.s.sql.joinGroup, all, slices.Min(all)); err != nil {
			return err
		}
		x.onCommit(func() { x.s.handlers.join(name) })
	}
	return nil
}

func (x *session) members(ctx context.Context, refs []int32) (all []int32, err error) {
	err = x.rows(ctx, x.s.sql.members, func(scan func(...any) error) (bool, error) {
		var ref int32
		err := scan(&ref)
		all = append(all, ref)
		return true, err
	}, refs)
	return all, err
}
