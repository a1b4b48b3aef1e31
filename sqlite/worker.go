package sqlite

import (
	"context"
	"sync"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// deliveryKey names a delivery by its numbers.
type deliveryKey struct{ event, handler int64 }

// slice is what is leased: one lane of one handler.
type slice struct {
	handler int64
	lane    uint8
}

// orderKey is an ordering key as one stored handler sees it.
type orderKey struct {
	handler int64
	key     string
}

// run is a delivery that was handed out.
type run struct {
	lease store.Lease
	token lane.Token
	key   string
	claim int64 // the claim record that lists it
}

// place is a position in the order in which a slice's deliveries become due.
type place struct{ due, event int64 }

// todo has the lanes of a handler in which something may be claimed, and from
// which place on. It is a hint: what is not in it is found by looking.
type todo struct {
	places [lane.Count]place
	has    [lane.Count]bool
}

// first returns the lane with the oldest place.
func (t *todo) first() (number uint8, at place, ok bool) {
	for i := range t.places {
		if t.has[i] && (!ok || t.places[i].due < at.due) {
			number, at, ok = uint8(i), t.places[i], true
		}
	}
	return number, at, ok
}

func (t *todo) set(number uint8, at place) { t.places[number], t.has[number] = at, true }
func (t *todo) drop(number uint8)          { t.has[number] = false }

// asOf tells a state of the database from later ones: what others commit changes
// version, and changes is the store's.
type asOf struct{ version, changes int64 }

// worker is what an instance knows of one of its owners. The database changes
// only under the one writer connection, and what is here changes with it while
// that is held; mu is for those who look without.
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
	// held counts what runs in each slice; a slice is leased while something does.
	held map[slice]int
	// claims counts what runs of each claim record; number is the last one.
	claims map[int64]int
	number int64
	// doubt says that the database may list what was not handed out.
	doubt bool
	// maybe has what callers' transactions may have completed.
	maybe map[deliveryKey]struct{}
	todo  map[int64]*todo
	// complete says as of which state of the database the todo of a handler has
	// everything.
	complete map[int64]asOf
	// paused has the handlers that were paused when a claim last looked.
	paused map[int64]bool
	// looked is when the lanes were last looked for, and claimed how many
	// claims there were since.
	looked  int64
	claimed int
	// served has the number of the claim that last brought a handler something.
	served map[string]int64
	turns  int64
}

func newWorker(name string) *worker {
	w := &worker{
		name:     name,
		turn:     make(chan struct{}, 1),
		todo:     make(map[int64]*todo),
		complete: make(map[int64]asOf),
		served:   make(map[string]int64),
	}
	w.forget()
	return w
}

// forget drops everything that belongs to an owner that is no more.
func (w *worker) forget() {
	w.owner, w.lease, w.number, w.doubt = 0, 0, 0, false
	w.running = make(map[deliveryKey]*run)
	w.keys = make(map[orderKey]int)
	w.held = make(map[slice]int)
	w.claims = make(map[int64]int)
	w.maybe = make(map[deliveryKey]struct{})
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

// add notes a delivery that is handed out.
func (w *worker) add(d deliveryKey, r *run) {
	w.running[d] = r
	w.held[slice{d.handler, r.token.Lane}]++
	w.claims[r.claim]++
	if r.key != "" {
		w.keys[orderKey{d.handler, r.key}]++
	}
}

// remove notes that a claim has ended.
func (w *worker) remove(d deliveryKey, token lane.Token) {
	r := w.running[d]
	if r == nil || r.token != token {
		return
	}
	delete(w.running, d)
	delete(w.maybe, d)
	lower(w.held, slice{d.handler, token.Lane})
	lower(w.claims, r.claim)
	if r.key != "" {
		lower(w.keys, orderKey{d.handler, r.key})
	}
}

func lower[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] <= 0 {
		delete(counts, k)
	}
}

// holds returns the claim that the lease belongs to, or nil when it was not
// handed out, or has ended.
func (w *worker) holds(l store.Lease) *run {
	r := w.running[deliveryKey{l.Ref[0], l.Ref[1]}]
	if r == nil || r.lease != l {
		return nil
	}
	return r
}

// hint notes that something may be claimable in the slice from due on.
func (w *worker) hint(at slice, due int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.todo[at.handler]
	if t == nil {
		t = &todo{}
		w.todo[at.handler] = t
	}
	if !t.has[at.lane] || due <= t.places[at.lane].due {
		t.set(at.lane, place{due: due})
	}
}
