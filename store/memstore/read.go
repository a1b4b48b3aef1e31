package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store/lane"
)

// snapshot is what a claim reads in one step.
type snapshot struct {
	mark    lane.Reading
	running int // when the reading began
	bounds  lane.Mark
	views   []view // in the order of the claim's sets
	next    int64  // when further work becomes due, or never
}

// view is what there is for one handler.
type view struct {
	candidates []candidate // in the order in which they became due
	// free has the lanes with due work that nobody holds, the one with the
	// oldest first.
	free []*slice
	// cut has the lanes that were not read to their end because of blocked
	// deliveries; more says that the reading stopped at the limit.
	cut  map[*slice]struct{}
	more bool
	// idle has the lanes without due work, with the time of their next.
	idle []idle
}

type idle struct {
	slice *slice
	next  int64
}

// candidate is a copy of a due delivery, taken at the time of the reading.
type candidate struct {
	set        int       // the index of its handler in the claim
	delivery   *delivery // only what never changes of it
	event      *event
	slice      *slice
	epoch      int64
	edits      int64
	generation int64
	attempts   int
	lost       int
	alone      bool
	due        int64
	head       int64
	// blocked says that it waits behind its key; elsewhere that another one of
	// its key runs, which is only looked up for handlers with aliases.
	blocked   bool
	elsewhere bool
	followers bool
	// runs is found when picking.
	runs bool
}

// look is the reading step.
func (c *claim) look(snap *snapshot) {
	s, db := c.store, c.store.db
	db.mu.Lock()
	defer db.mu.Unlock()
	s.refresh(c.now)
	snap.bounds = s.bounds.Begin()
	snap.next = never
	snap.views = make([]view, len(c.sets))
	for i, set := range c.sets {
		handlers := db.claimable(set)
		if handlers == nil {
			continue
		}
		reader := reader{claim: c, db: db, index: i, set: set, handlers: handlers, keys: make(map[string]keyView)}
		snap.views[i] = reader.view(snap.running)
		snap.next = min(snap.next, reader.next())
	}
}

// refresh forgets the bounds when another instance may have made something
// claimable, and once a second whatever happens.
func (s *Store) refresh(now int64) {
	others := s.db.changes - s.own
	if others != s.seen || now >= s.forgot+int64(time.Second/time.Millisecond) || now < s.forgot {
		s.bounds.Forget()
		s.seen, s.forgot = others, now
	}
}

// claimable returns the handlers of the set that exist, or nil when there are
// none or one of them is paused.
func (db *database) claimable(s set) []*handler {
	var handlers []*handler
	for _, id := range s.ids {
		h := db.handlers[id]
		if h == nil {
			continue
		}
		if h.paused {
			return nil
		}
		handlers = append(handlers, h)
	}
	return handlers
}

// reader reads for one handler.
type reader struct {
	claim    *claim
	db       *database
	index    int
	set      set
	handlers []*handler
	keys     map[string]keyView
}

type keyView struct {
	head      int64
	followers bool
	elsewhere bool
	seen      bool
}

// view reads enough due deliveries from the held lanes to fill the handler's
// limit whatever runs already, and finds the free lanes that have some.
func (r *reader) view(running int) view {
	c := r.claim
	v := view{cut: make(map[*slice]struct{})}
	var cursors []cursor[*delivery]
	var oldest []idle
	for _, h := range r.handlers {
		for _, s := range h.slices {
			if s == nil || !c.store.bounds.May(s.number, instant(c.now)) {
				continue
			}
			first, ok := s.ready.first()
			switch {
			case !ok:
				v.idle = append(v.idle, idle{s, never})
			case first.due > c.now:
				v.idle = append(v.idle, idle{s, first.due})
			case s.owner == nil:
				oldest = append(oldest, idle{s, first.due})
			case s.owner == c.owner:
				cursors = append(cursors, s.ready.seek(func(*delivery) bool { return true }))
			}
		}
	}
	slices.SortStableFunc(oldest, func(a, b idle) int { return cmp.Compare(a.next, b.next) })
	for _, o := range oldest {
		v.free = append(v.free, o.slice)
	}
	r.merge(&v, cursors, r.set.limit+running+1)
	return v
}

// merge reads the lanes together in the order of due times until it has quota
// deliveries that are not blocked.
func (r *reader) merge(v *view, cursors []cursor[*delivery], quota int) {
	blocked := make(map[*slice]int)
	queue := newQueue(cursors)
	for {
		d := queue.head()
		if d == nil || d.due > r.claim.now {
			return
		}
		if quota == 0 {
			v.more = true
			return
		}
		next := r.candidate(d)
		v.candidates = append(v.candidates, next)
		if !next.blocked {
			quota--
		} else if blocked[d.slice]++; blocked[d.slice] >= r.claim.slack+r.set.limit {
			v.cut[d.slice] = struct{}{}
			queue.drop()
			continue
		}
		queue.advance()
	}
}

func (r *reader) candidate(d *delivery) candidate {
	next := candidate{
		set:        r.index,
		delivery:   d,
		event:      d.event,
		slice:      d.slice,
		epoch:      d.slice.epoch,
		edits:      d.slice.edits,
		generation: d.claims,
		attempts:   d.attempts,
		lost:       d.lost,
		alone:      d.alone,
		due:        d.due,
	}
	if key := d.key(); key != "" {
		k := r.key(key)
		next.head, next.followers, next.elsewhere = k.head, k.followers, k.elsewhere
		next.blocked = k.seen || k.elsewhere || d.sequence() > k.head
		k.seen = k.seen || !next.blocked
		r.keys[key] = k
	}
	return next
}

// key returns what is known of a key, which is looked up once.
func (r *reader) key(key string) keyView {
	k, ok := r.keys[key]
	if ok {
		return k
	}
	k.head = never
	count := 0
	for _, h := range r.handlers {
		if list := h.keys[key]; list != nil {
			head, _ := list.first()
			k.head = min(k.head, head.sequence())
			count += list.len()
		}
		k.elsewhere = k.elsewhere || (len(r.set.ids) > 1 && h.busy[key] > 0)
	}
	k.followers = count > 1
	r.keys[key] = k
	return k
}

// next returns when the next delivery becomes due that neither runs nor is
// blocked by its key.
func (r *reader) next() int64 {
	next := int64(never)
	for _, h := range r.handlers {
		for _, s := range h.slices {
			if s == nil {
				continue
			}
			for at := s.ready.seek(func(d *delivery) bool { return d.due > r.claim.now }); ; at.next() {
				d, ok := at.value()
				if !ok || d.due >= next {
					break
				}
				if !r.waits(d) {
					next = d.due
					break
				}
			}
		}
	}
	return next
}

func (r *reader) waits(d *delivery) bool {
	if r.db.running[d] != nil {
		return true
	}
	key := d.key()
	if key == "" {
		return false
	}
	return d.sequence() > r.key(key).head ||
		slices.ContainsFunc(r.handlers, func(h *handler) bool { return h.busy[key] > 0 })
}
