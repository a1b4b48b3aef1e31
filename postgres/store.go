package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/store"
)

// Kind is the kind of this store.
const Kind = "postgres"

// Store keeps events and deliveries in PostgreSQL. It is a [store.Store] and a
// [store.Waker]. Make one with [New]; all methods may be called by many
// goroutines at once.
type Store struct {
	cfg  Config
	pool *pgxpool.Pool
	// own has the connections for what the store does by itself: nobody else's
	// transaction holds one of them, so that it never waits for a caller.
	own *pgxpool.Pool
	// asides has a token for each of its connections that is used by what can wait.
	asides chan struct{}
	sql    *statements
	// key names what is remembered with a connection.
	key string

	handlers *directory
	identity atomic.Pointer[string]
	closed   atomic.Bool
	// appends counts the events that this instance has appended.
	appends atomic.Int64
	// crash is called at named points; tests kill the process there.
	crash func(point string)
	meter meter

	notifier *notifier
	// instance tells this store's notifications from others'.
	instance string
	// warned says that notifications were found not to arrive.
	warned atomic.Bool

	mu      sync.Mutex
	workers map[string]*worker
}

// New returns a store on the pool. It does not connect. The pool stays the
// caller's: transactions of the caller are opened there, and the store never
// closes it. What the store does by itself (claiming, completing, listing) it does
// on up to [Config].Connections connections of its own, which are made like those
// of the pool, but without the hooks by which that acquires and releases them:
// however many transactions hold the pool's connections, the bus goes
// on, and code inside of a transaction may call it. Close the store after the bus
// has stopped, and then the pool. Errors are [store.ErrConfiguration].
func New(pool *pgxpool.Pool, c Config) (*Store, error) {
	const op = "open store"
	c = c.withDefaults()
	err := c.validate()
	if pool == nil {
		err = errors.Join(err, errors.New("the pool is nil"))
	}
	if err != nil {
		return nil, configurationError(op, err)
	}
	own := pool.Config()
	own.MaxConns, own.MinConns, own.MinIdleConns = c.Connections, 0, 0
	// They may undo what settle sets for good, as DISCARD ALL does.
	own.PrepareConn, own.AfterRelease = nil, nil
	own.BeforeAcquire = nil //nolint:staticcheck // The older name of PrepareConn; callers may still set it.
	callers := own.AfterConnect
	own.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if callers != nil {
			if err := callers(ctx, conn); err != nil {
				return err
			}
		}
		return settle(ctx, conn)
	}
	s := &Store{
		cfg:      c,
		pool:     pool,
		sql:      newStatements(c),
		key:      "relaybus " + quote(c.Schema) + quote(c.Prefix),
		handlers: newDirectory(),
		crash:    func(string) {},
		workers:  make(map[string]*worker),
		asides:   make(chan struct{}, max(1, c.Connections/2)),
	}
	s.notifier = newNotifier(s)
	if s.instance, err = newIdentity(); err != nil {
		return nil, err
	}
	s.own, err = pgxpool.NewWithConfig(context.Background(), own) //nolint:forbidigo // It connects to nothing yet.
	if err != nil {
		return nil, configurationError(op, err)
	}
	return s, nil
}

// Close closes the connections that the store made for itself, and waits for those
// that are in use. Afterwards every call fails with [store.ErrClosed]. The caller's
// pool stays open. The error is nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.notifier.stop()
	s.own.Close()
	return nil
}

// Kind returns "postgres".
func (*Store) Kind() string { return Kind }

// Features declares whether completed deliveries are kept.
func (s *Store) Features() store.Features {
	return store.Features{NoHistory: !s.cfg.History}
}

// worker returns what the store knows of an owner, who claims now if not before.
func (s *Store) worker(name string) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[name]
	if w == nil {
		w = newWorker(name)
		s.workers[name] = w
	}
	return w
}

// enterWorker waits for the turn of an owner, who may be forgotten meanwhile.
func (s *Store) enterWorker(ctx context.Context, op, name string) (*worker, error) {
	for {
		w := s.worker(name)
		if err := w.enter(ctx, op); err != nil {
			return nil, err
		}
		if s.known(name) == w {
			return w, nil
		}
		w.leave()
	}
}

// drop forgets an owner who has ended. Its turn is the caller's.
func (s *Store) drop(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers[w.name] == w {
		delete(s.workers, w.name)
	}
}

// known returns what the store knows of an owner, or nil for one that never
// claimed on this instance.
func (s *Store) known(name string) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[name]
}

// hint tells every worker that a delivery may have become claimable.
func (s *Store) hint(at slice, due int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		w.hint(at, due)
	}
}

func instant(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }

// lasting is a context for a step of a transaction of the store's own. One that
// is interrupted costs the connection, and leaves its locks until the server
// notices: so a step goes on for a while after the caller's context has ended, and
// that is looked at between the steps.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}

const (
	// patience bounds a step whatever the caller's context says.
	patience = 15 * time.Second
	// grace is how much longer than the caller's context a step may take.
	grace = time.Second
)
