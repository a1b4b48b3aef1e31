package postgres

import (
	"context"
	"slices"
	"sync"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// deliveryKey names a delivery by its numbers.
type deliveryKey struct {
	event   int64
	handler int32
}

// slice is what is leased: one lane of one handler.
type slice struct {
	handler int32
	lane    uint8
}

// orderKey is an ordering key as one stored handler sees it.
type orderKey struct {
	handler int32
	key     string
}

// run is a delivery that was handed out.
type run struct {
	lease store.Lease
	key   string
	due   int64
	claim int64 // the claim record that lists it
}

// place is a position in the order in which a slice's deliveries become due.
type place struct{ due, event int64 }

func (p place) before(o place) bool { return p.due < o.due || p.due == o.due && p.event < o.event }

// spot is from where on a slice may have something to claim.
type spot struct {
	place
	// hinted is when it was last lowered, by the worker's clock.
	hinted uint64
	// holder is another owner who has the lane, and runs nothing there, as of the
	// last look.
	holder int64
}

// worker is what an instance knows of one of its owners.
type worker struct {
	name string
	// turn holds a token while a claim runs: claims go one after the other.
	turn chan struct{}

	mu    sync.Mutex
	owner int64 // the number in the database, 0 while not registered
	lease int64
	// running has what was handed out and has not ended.
	running map[deliveryKey]*run
	keys    map[orderKey]int
	// ended has the generations of what ended since a claim began to read, as its
	// snapshot may still show them; it is nil while none reads.
	ended map[deliveryKey]int64
	// claims counts what runs of each claim record; number is the last one, and
	// emptied are those of which nothing runs any more.
	claims  map[int64]int
	number  int64
	emptied []int64
	// doubt says that the database may list what was not handed out.
	doubt bool
	// maybe has what callers' transactions may have completed.
	maybe map[deliveryKey]struct{}

	// todo has the slices in which something may be claimed. It is a hint: what is
	// not in it is found by looking. clock counts its changes.
	todo  map[slice]*spot
	clock uint64
	// owns has the slices that the owner has, as of when a claim last saw them.
	owns map[slice]struct{}
	// horizon says from where on a look looks.
	horizon horizon
	// looked is when the lanes were last looked for, and claimed how many claims
	// there were since.
	looked  int64
	claimed int
	seen    bool // they were looked for at all
	// sequence was the last one then, and appends how many events this instance
	// had appended. foreign has who holds the lanes of handlers with several ids.
	sequence, appends int64
	foreign           map[slice]int64
	// groups has the handlers of which there are several ids, and paused those
	// that were paused when a claim last looked.
	groups map[int32]int32
	paused map[int32]bool
	// served has the number of the claim that last brought a handler something.
	served map[string]int64
	turns  int64
}

func newWorker(name string) *worker {
	w := &worker{
		name:   name,
		turn:   make(chan struct{}, 1),
		todo:   make(map[slice]*spot),
		served: make(map[string]int64),
	}
	w.forget()
	return w
}

// forget drops everything that belongs to an owner that is no more.
func (w *worker) forget() {
	w.owner, w.lease, w.doubt = 0, 0, false // The numbers of claims go on.
	w.horizon = horizon{}
	w.running = make(map[deliveryKey]*run)
	w.keys = make(map[orderKey]int)
	w.claims = make(map[int64]int)
	w.emptied = nil
	w.maybe = make(map[deliveryKey]struct{})
	w.owns = make(map[slice]struct{})
}

func (w *worker) enter(ctx context.Context, op string) error {
	if err := ended(ctx, op); err != nil {
		return err
	}
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx, op)
	}
}

func (w *worker) leave() { <-w.turn }

// id returns the owner's number, or 0.
func (w *worker) id() int64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owner
}

// add notes a delivery that is handed out.
func (w *worker) add(d deliveryKey, r *run) {
	w.running[d] = r
	w.claims[r.claim]++
	if r.key != "" {
		w.keys[orderKey{d.handler, r.key}]++
	}
}

// remove notes that a claim has ended.
func (w *worker) remove(d deliveryKey, token lane.Token) {
	r := w.running[d]
	if r == nil || r.lease.Token != token {
		return
	}
	delete(w.running, d)
	delete(w.maybe, d)
	if w.ended != nil {
		w.ended[d] = token.Claims
	}
	if lower(w.claims, r.claim) {
		w.emptied = append(w.emptied, r.claim)
	}
	if r.key != "" {
		lower(w.keys, orderKey{d.handler, r.key})
	}
}

// dropped notes that the claim records are deleted. The caller holds the mutex.
func (w *worker) dropped(claims []int64) {
	w.emptied = slices.DeleteFunc(w.emptied, func(claim int64) bool { return slices.Contains(claims, claim) })
}

// lower counts down, and reports whether that was the last one.
func lower[K comparable](counts map[K]int, k K) bool {
	if counts[k]--; counts[k] > 0 {
		return false
	}
	delete(counts, k)
	return true
}

// runningFrom counts what runs in each slice from the place on where the slice is to
// be read: a reading meets it. The caller holds the mutex.
func (w *worker) runningFrom(places map[slice]place) map[slice]int64 {
	n := make(map[slice]int64)
	for d, r := range w.running {
		at := slice{d.handler, r.lease.Token.Lane}
		if from, ok := places[at]; ok && !(place{r.due, d.event}).before(from) {
			n[at]++
		}
	}
	return n
}

// holds returns the claim that the lease belongs to, or nil when it was not
// handed out, or has ended.
func (w *worker) holds(l store.Lease) *run {
	r := w.running[keyOf(l)]
	if r == nil || r.lease != l {
		return nil
	}
	return r
}

func keyOf(l store.Lease) deliveryKey {
	return deliveryKey{l.Ref[0], int32(l.Ref[1])} //nolint:gosec // what the claim put there
}

// hint notes that something may be claimable in the slice from due on.
func (w *worker) hint(at slice, due int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	t := w.todo[at]
	if t == nil {
		t = &spot{place: place{due: due}}
		w.todo[at] = t
	} else if from := (place{due: due}); from.before(t.place) {
		t.place = from
	}
	t.hinted = w.clock
}

// move notes from where on a slice is to be read after a reading that began when
// the clock was at mark; nothing is known of it when ok is false. A hint that came
// in since is of a commit that the reading may not have seen, and stays.
func (w *worker) move(at slice, next place, ok bool, mark uint64) {
	t := w.todo[at]
	switch {
	case t == nil:
	case t.hinted > mark:
		if ok && next.before(t.place) {
			t.place = next
		}
	case ok:
		t.place = next
	default:
		delete(w.todo, at)
	}
}
