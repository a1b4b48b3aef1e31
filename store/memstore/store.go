package memstore

import (
	"context"
	"sync"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// Kind is what [Store.Kind] returns.
const Kind = "memory"

var (
	_ store.Store = (*Store)(nil)
	_ store.Waker = (*Store)(nil)
)

// Config has the options of a store. The zero value is usable.
type Config struct {
	// History keeps completed deliveries, so that they can be listed until
	// they are purged. The default is to delete them.
	History bool
}

// Store keeps events and deliveries in memory. It is safe for concurrent use.
type Store struct {
	db     *database
	config Config

	mu      sync.Mutex
	workers map[string]*worker

	// The fields from here on are guarded by the mutex of the database: what
	// they say is compared with it in one step.
	bounds *lane.Bounds[int64]
	// own counts the changes of the database that this instance made, seen is
	// how many of others it knew when it last forgot its bounds.
	own, seen uint64
	forgot    int64

	hooks hooks
}

// New returns an empty store.
func New(config Config) *Store {
	return newInstance(newDatabase(), config)
}

// Instance returns another store on the same data with the same options. It
// has owners of its own, as if it were opened by another process.
func (s *Store) Instance() *Store { return newInstance(s.db, s.config) }

func newInstance(db *database, config Config) *Store {
	return &Store{
		db:      db,
		config:  config,
		workers: make(map[string]*worker),
		bounds:  lane.NewBounds[int64](),
	}
}

// Kind returns "memory".
func (*Store) Kind() string { return Kind }

// Features declares a volatile store of a single process, without completion
// history unless [Config].History is set.
func (s *Store) Features() store.Features {
	return store.Features{Volatile: true, SingleProcess: true, NoHistory: !s.config.History}
}

// Setup has nothing to prepare. It fails only when the context has ended.
func (*Store) Setup(ctx context.Context) error { return alive(ctx, "set up store") }

// worker returns what this instance knows of an owner.
func (s *Store) worker(owner string) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[owner]
	if w == nil {
		w = newWorker(owner)
		s.workers[owner] = w
	}
	return w
}
