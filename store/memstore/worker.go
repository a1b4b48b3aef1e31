package memstore

import (
	"context"
	"iter"
	"sync"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

type book = lane.Book[store.DeliveryID, string]

// worker is what an instance knows of one of its owners.
type worker struct {
	name string
	// turn holds a token while a claim runs: claims go one after the other.
	turn chan struct{}
	// served has when each handler was last given something. unsure says that
	// the database may list something that was not handed out. Both belong to
	// whoever has the turn.
	served map[string]uint64
	claims uint64
	unsure bool

	mu    sync.Mutex
	owner *owner
	book  *book
}

func newWorker(name string) *worker {
	return &worker{
		name:   name,
		turn:   make(chan struct{}, 1),
		served: make(map[string]uint64),
		book:   lane.NewBook[store.DeliveryID, string](),
	}
}

// enter waits for the turn.
func (w *worker) enter(ctx context.Context, op string) error {
	if err := alive(ctx, op); err != nil {
		return err
	}
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return alive(ctx, op)
	}
}

func (w *worker) leave() { <-w.turn }

// current returns the owner under which the worker is registered, or nil.
func (w *worker) current() *owner {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owner
}

// become notes that the worker is registered as o, which is nil when it has
// ended. What ran under another owner is lost.
func (w *worker) become(o *owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner == o {
		return
	}
	w.owner = o
	w.book = lane.NewBook[store.DeliveryID, string]()
	w.unsure = false
}

// settled notes that the claim with this lease has ended, by this worker or by
// another one.
func (w *worker) settled(l store.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book.Remove(store.DeliveryID{EventID: l.EventID, Handler: l.Handler}, l.Token)
}

// ids yields the id of the handler and its aliases.
func ids(h store.Handler) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(h.ID) {
			return
		}
		for _, id := range h.Aliases {
			if id != h.ID && !yield(id) {
				return
			}
		}
	}
}
