package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Kind is the [store.Store.Kind] of this package's stores.
const Kind = "sqlite"

// transactionBudget is the default time budget of a transactional handler: it
// keeps every other writer waiting.
const transactionBudget = 2 * time.Second

var (
	_ store.Store = (*Store)(nil)
	_ store.Waker = (*Store)(nil)
)

// Store is a store in one SQLite file. Open makes it; it is safe for use by
// many goroutines. Many stores, in many processes of one machine, can share
// the file.
type Store struct {
	cfg    Config
	path   string
	sql    *statements
	writer *sql.DB
	reader *sql.DB
	meter  meter
	closed atomic.Bool
	// gone is closed with the store. gate holds a token while a transaction of
	// the store's own has the writer connection, or waits for it.
	gone, gate chan struct{}
	// identity is the random id of the database, or "" while it is not known.
	identity atomic.Pointer[string]
	handlers *directory
	// crash is called at named points. Only tests set it.
	crash func(point string)
	// commits counts what this instance committed; appended is the greatest
	// sequence among it.
	commits, appended atomic.Int64
	// version is what the writer connection last saw of the database's own
	// counter, foreign how often it had changed because of others.
	version, foreign atomic.Int64
	// changes grows when something of this instance may have made deliveries
	// claimable of which no worker was told.
	changes atomic.Int64

	mu      sync.Mutex
	workers map[string]*worker
	// finished is what is handed out for transactions that have ended.
	finished *refusal
}

// Open opens the SQLite file with the default [Config]. See [OpenConfig].
func Open(path string) (*Store, error) { return OpenConfig(path, Config{}) }

// OpenConfig opens a store on the SQLite file at path, which is a plain path
// and no URI. The file is created by the first use, its directory must exist.
// The file is put into WAL mode and has two companions, path-wal and path-shm,
// that belong to it. It must be on a local disk, not on a network share.
//
// The caller must Close the store; a bus never does. Errors are
// [store.ErrConfiguration].
func OpenConfig(path string, c Config) (*Store, error) {
	const op = "open store"
	c = c.withDefaults()
	absolute, err := location(path)
	if err = errors.Join(err, c.validate()); err != nil {
		return nil, configurationError(op, err)
	}
	if err := checkDirectory(absolute); err != nil {
		return nil, configurationError(op, err)
	}
	s := &Store{
		cfg:      c,
		path:     absolute,
		sql:      newStatements(c.Prefix),
		handlers: newDirectory(),
		workers:  make(map[string]*worker),
		crash:    func(string) {},
		gone:     make(chan struct{}),
		gate:     make(chan struct{}, 1),
	}
	if s.writer, err = s.open(true); err != nil {
		return nil, configurationError(op, err)
	}
	// One writer, so that the goroutines of this process queue for it here
	// rather than at the lock of the file.
	s.writer.SetMaxOpenConns(1)
	s.writer.SetMaxIdleConns(1)
	if s.reader, err = s.open(false); err != nil {
		return nil, errors.Join(configurationError(op, err), s.writer.Close())
	}
	s.reader.SetMaxOpenConns(c.Readers)
	s.reader.SetMaxIdleConns(c.Readers)
	return s, nil
}

func checkDirectory(path string) error {
	info, err := os.Stat(filepath.Dir(filepath.FromSlash(path)))
	if err == nil && !info.IsDir() {
		err = errors.New("the parent of the path is not a directory")
	}
	if err != nil {
		return err
	}
	if info, err := os.Stat(filepath.FromSlash(path)); err == nil && info.IsDir() {
		return errors.New("the path is a directory")
	}
	return nil
}

func (s *Store) open(writer bool) (*sql.DB, error) {
	inner, err := newConnector(s.path, s.cfg, !writer)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(&connector{
		Connector:   inner,
		busyTimeout: s.cfg.BusyTimeout,
		statements:  s.sql.texts,
		writer:      writer,
		meter:       &s.meter,
	}), nil
}

// Close closes the connections that Open made. Afterwards every call fails with
// [store.ErrClosed], those that wait for the writer too, and [Store.Wake]
// returns. Close does not wait for transactions that are open: their connection
// is closed when they end, and they may still be committed. Stop the bus, and
// end transactions, before.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		close(s.gone)
	}
	s.mu.Lock()
	finished := s.finished
	s.finished = nil
	s.mu.Unlock()
	if finished != nil {
		finished.close()
	}
	return errors.Join(s.reader.Close(), s.writer.Close())
}

// DB returns the handle that writes. It has one connection, so a transaction
// on it holds up the store and everybody else who writes, and a second one
// within the first waits for ever unless its context ends. BeginTx begins
// immediately, with the write lock: a transaction that reads before it writes
// never fails because somebody else wrote in between. Contention is waited for
// as [Config].BusyTimeout says. The caller must not close it.
func (s *Store) DB() *sql.DB { return s.writer }

// Reader returns the handle that only reads, for the caller's queries beside
// the writer. The caller must not close it.
func (s *Store) Reader() *sql.DB { return s.reader }

// Kind returns "sqlite".
func (*Store) Kind() string { return Kind }

// Features declares that there is one write transaction at a time, and whether
// completed deliveries are kept.
func (s *Store) Features() store.Features {
	return store.Features{
		SerialTransactions: true,
		NoHistory:          !s.cfg.History,
		TransactionBudget:  transactionBudget,
	}
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

// free tells the other workers that a lane is free.
func (s *Store) free(but *worker, at slice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		if w != but {
			w.hint(at, 0)
		}
	}
}

// still is a context for the statements of a transaction: they are short, and
// one that is interrupted would take the transaction with it.
func still(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
