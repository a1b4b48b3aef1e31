package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, backend())
}

// patience is longer than any load of the machine makes a step wait.
const patience = time.Minute

// pathVariable tells a worker process which file to open.
const pathVariable = "RELAYBUS_SQLITE_TEST_PATH"

func backend() storetest.Backend {
	points := sqlite.CrashPoints()
	return storetest.Backend{
		Name: "sqlite",
		New:  newDatabase,
		CrashPoints: storetest.CrashPoints{
			Setup:    points["setup"],
			Publish:  points["publish"],
			Work:     points["work"],
			Takeover: points["takeover"],
		},
	}
}

// opened has the stores of one database.
type opened struct {
	mu   sync.Mutex
	list []*sqlite.Store
}

func (o *opened) add(s *sqlite.Store) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, s)
}

func (o *opened) sum(f func(*sqlite.Store) int64) func() int64 {
	return func() (n int64) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, s := range o.list {
			n += f(s)
		}
		return n
	}
}

func newDatabase(tb testing.TB) storetest.Database {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "store.db")
	makeEffects(tb, path)
	stores := &opened{}
	return storetest.Database{
		Open: func(tb testing.TB, o storetest.Options) store.Store {
			tb.Helper()
			s := open(tb, path, sqlite.Config{History: o.History, BusyTimeout: patience})
			stores.add(s)
			return s
		},
		Begin:   begin,
		Effect:  effect,
		Effects: effects,
		Command: func(tb testing.TB) *exec.Cmd {
			tb.Helper()
			cmd := exec.CommandContext(tb.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), pathVariable+"="+path)
			return cmd
		},
		Counters: storetest.Counters{
			RowsRead:     stores.sum(sqlite.RowsRead),
			Transactions: stores.sum(sqlite.Writes),
			Commands:     stores.sum(sqlite.Statements),
		},
	}
}

func open(tb testing.TB, path string, c sqlite.Config) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.OpenConfig(path, c)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

// makeEffects makes the caller's own table.
func makeEffects(tb testing.TB, path string) {
	tb.Helper()
	s, err := sqlite.Open(path)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	_, err = s.DB().ExecContext(tb.Context(), `CREATE TABLE effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL)`)
	if err = errors.Join(err, s.Close()); err != nil {
		tb.Fatalf("make the caller's table: %v", err)
	}
}

func begin(tb testing.TB, s store.Store) storetest.CallerTx {
	tb.Helper()
	own, ok := s.(*sqlite.Store)
	if !ok {
		tb.Fatalf("a %T is no SQLite store", s)
	}
	tx, err := own.DB().BeginTx(tb.Context(), nil)
	if err != nil {
		tb.Fatalf("begin: %v", err)
	}
	tb.Cleanup(func() {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			tb.Errorf("roll back: %v", err)
		}
	})
	return storetest.CallerTx{Tx: sqlite.Join(tx), Commit: tx.Commit, Rollback: tx.Rollback}
}

// effect writes the caller's row by the means of the driver.
func effect(ctx context.Context, tx store.Tx, id string) error {
	_, err := sqlite.Tx(store.WithTx(ctx, tx)).ExecContext(ctx, `INSERT INTO effects (id) VALUES (?)`, id)
	return err
}

func effects(tb testing.TB, s store.Store) (ids []string) {
	tb.Helper()
	own, ok := s.(*sqlite.Store)
	if !ok {
		tb.Fatalf("a %T is no SQLite store", s)
	}
	rows, err := own.Reader().QueryContext(tb.Context(), `SELECT id FROM effects ORDER BY n`)
	if err != nil {
		tb.Fatalf("read effects: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			tb.Fatalf("read effects: %v", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		tb.Fatalf("read effects: %v", err)
	}
	return ids
}

func conformanceWorker() storetest.Worker {
	return storetest.Worker{
		Open: func(o storetest.Options) (store.Store, error) {
			return sqlite.OpenConfig(os.Getenv(pathVariable), sqlite.Config{History: o.History, BusyTimeout: patience})
		},
		Effect: effect,
		Arm: func(s store.Store, point string, nth int, crash func()) error {
			own, ok := s.(*sqlite.Store)
			if !ok {
				return errors.New("not a SQLite store")
			}
			return sqlite.Arm(own, point, nth, crash)
		},
	}
}
