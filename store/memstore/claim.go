package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

const opClaim = "claim deliveries"

// claim is a claim under way, with all that it carries from step to step. Each
// step is one critical section of the database.
type claim struct {
	store  *Store
	worker *worker
	sets   []set
	limit  int
	now    int64
	until  int64

	owner *owner
	// round counts how often lanes were taken, slack is how many blocked
	// deliveries a lane may have before its reading is cut short, parked is how
	// many were parked.
	round  int
	slack  int
	parked int

	read    *snapshot
	reading bool // the reading is open in the worker's book
	choice  *choice
}

// set is a handler that has a free slot, with all its ids.
type set struct {
	id    string
	ids   []string
	limit int
}

// Claim takes due deliveries; see [store.Claimer]. Claims of one owner wait for
// each other. A result without deliveries means that when the claim last read
// there was nothing that it may take; NextDue is exact: the earliest time at
// which a delivery becomes due that is not blocked by its key, in any lane.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
	if r.Owner == "" || r.Lease <= 0 {
		return store.ClaimResult{}, store.NewError(opClaim, store.ErrInvalidArgument,
			"a claim needs an owner and a lease longer than 0", nil)
	}
	w := s.worker(r.Owner)
	if err := w.enter(ctx, opClaim); err != nil {
		return store.ClaimResult{}, err
	}
	defer w.leave()
	now := millis(r.Now)
	c := &claim{
		store:  s,
		worker: w,
		sets:   w.order(r.Handlers, r.Limit),
		limit:  r.Limit,
		now:    now,
		until:  expiry(now, r.Lease),
		slack:  lane.ScanSlack,
	}
	return c.run(ctx)
}

// order returns the handlers that may get something, whom the owner served
// longest ago first. An id that is listed twice counts once.
func (w *worker) order(handlers []store.HandlerLimit, limit int) []set {
	sets := make([]set, 0, len(handlers))
	listed := make(map[string]struct{}, len(handlers))
	for _, h := range handlers {
		s := set{id: h.ID, limit: min(h.Limit, limit)}
		for id := range ids(h.Handler) {
			if _, ok := listed[id]; !ok {
				listed[id] = struct{}{}
				s.ids = append(s.ids, id)
			}
		}
		if s.limit > 0 && len(s.ids) > 0 {
			sets = append(sets, s)
		}
	}
	slices.SortStableFunc(sets, func(a, b set) int { return cmp.Compare(w.served[a.id], w.served[b.id]) })
	return sets
}

func (c *claim) run(ctx context.Context) (store.ClaimResult, error) {
	defer c.endReading()
	if err := c.prepare(); err != nil {
		return store.ClaimResult{}, err
	}
	for {
		if err := alive(ctx, opClaim); err != nil {
			return store.ClaimResult{}, err
		}
		again, err := c.attempt()
		if err != nil {
			return store.ClaimResult{}, err
		}
		if again {
			continue
		}
		result := c.result()
		c.handOut()
		if c.store.step("tidy", c) == nil {
			c.tidy()
		}
		return result, nil
	}
}

// prepare takes over from expired owners, renews the own lease, and gives back
// what an earlier claim recorded without handing it out.
func (c *claim) prepare() error {
	s, w, db := c.store, c.worker, c.store.db
	if err := s.step("reap", c); err != nil {
		return failed(opClaim, err)
	}
	self := w.current()
	db.mu.Lock()
	before := db.changes
	db.reap(s, self, c.now)
	if db.changes != before {
		db.wake()
	}
	db.mu.Unlock()

	if err := s.step("register", c); err != nil {
		return failed(opClaim, err)
	}
	db.mu.Lock()
	c.owner = db.register(self, w.name, c.until)
	db.mu.Unlock()
	w.become(c.owner)

	if w.unsure {
		if err := s.step("reconcile", c); err != nil {
			return failed(opClaim, err)
		}
		c.reconcile()
	}
	return nil
}

// reconcile releases what the database lists for the owner although it was
// never handed out.
func (c *claim) reconcile() {
	w, db := c.worker, c.store.db
	held := w.held()
	db.mu.Lock()
	defer db.mu.Unlock()
	before := db.changes
	db.release(c.store, c.owner, c.now, func(d *delivery, generation int64) bool {
		t, ok := held[d.id()]
		return ok && t.Claims == generation
	})
	if db.changes != before {
		db.wake()
	}
	w.unsure = false
}

// held returns what the worker has handed out.
func (w *worker) held() map[store.DeliveryID]lane.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(map[store.DeliveryID]lane.Token, w.book.Len())
	w.book.Each(func(id store.DeliveryID, t lane.Token) bool {
		held[id] = t
		return true
	})
	return held
}

// attempt reads, picks and records. It returns true when the claim must read
// again: it took further lanes, parked what was in the way, or lost its picks
// to an operator.
func (c *claim) attempt() (again bool, err error) {
	c.endReading()
	snapshot := c.beginReading()
	if err := c.store.step("read", c); err != nil {
		return false, failed(opClaim, err)
	}
	c.look(snapshot)
	if err := c.store.step("pick", c); err != nil {
		return false, failed(opClaim, err)
	}
	c.choice = c.pick(snapshot)

	if cut := c.choice.cut; len(cut) > 0 && c.choice.left > 0 &&
		(len(c.choice.taken) == 0 || c.parked < lane.ParkBatch) {
		if err := c.store.step("park", c); err != nil {
			return false, failed(opClaim, err)
		}
		if c.park(cut) == 0 {
			c.slack *= 2
		}
		return true, nil
	}
	if len(c.choice.wanted) > 0 {
		if err := c.store.step("take", c); err != nil {
			return false, failed(opClaim, err)
		}
		return true, c.take(c.choice.wanted)
	}
	if len(c.choice.taken) == 0 {
		return false, nil
	}
	if err := c.store.step("record", c); err != nil {
		return false, failed(opClaim, err)
	}
	if err := c.record(); err != nil {
		return false, err
	}
	if err := c.store.step("recorded", c); err != nil {
		c.worker.unsure = true
		return false, lost(opClaim, err)
	}
	return len(c.choice.taken) == 0, nil
}

// take leases free lanes, under the live lease of the owner only: a worker that
// stalled and was taken over from must not.
func (c *claim) take(wanted []*slice) error {
	db := c.store.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.live(c.owner, c.now) && !c.store.hooks.ignoreLease {
		return store.NewError(opClaim, store.ErrLeaseLost, "another worker took over from this owner", nil)
	}
	for _, s := range wanted {
		if s.owner == nil {
			s.owner = c.owner
			s.epoch++
			c.owner.slices[s] = struct{}{}
		}
	}
	c.round++
	return nil
}

// beginReading opens a reading in the worker's book, before the database is
// asked.
func (c *claim) beginReading() *snapshot {
	w := c.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	c.read = &snapshot{mark: w.book.Begin(), running: w.book.Len()}
	c.reading = true
	return c.read
}

func (c *claim) endReading() {
	if !c.reading {
		return
	}
	c.reading = false
	c.worker.mu.Lock()
	defer c.worker.mu.Unlock()
	c.worker.book.End(c.read.mark)
}
