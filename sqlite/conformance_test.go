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

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, backend())
}

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

func newDatabase(t testing.TB) storetest.Database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	makeEffects(t, path)
	stores := &opened{}
	return storetest.Database{
		Open: func(t testing.TB, o storetest.Options) store.Store {
			t.Helper()
			s := open(t, path, sqlite.Config{History: o.History})
			stores.add(s)
			return s
		},
		Begin: begin,
		Effect: func(ctx context.Context, tx store.Tx, id string) error {
			return effect(ctx, tx, id)
		},
		Effects: effects,
		Command: func(t testing.TB) *exec.Cmd {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
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

func open(t testing.TB, path string, c sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.OpenConfig(path, c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// makeEffects makes the caller's own table.
func makeEffects(t testing.TB, path string) {
	t.Helper()
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	_, err = s.DB().ExecContext(t.Context(), `CREATE TABLE effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL)`)
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatalf("make the caller's table: %v", err)
	}
}

func begin(t testing.TB, s store.Store) storetest.CallerTx {
	t.Helper()
	own, ok := s.(*sqlite.Store)
	if !ok {
		t.Fatalf("a %T is no SQLite store", s)
	}
	tx, err := own.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	t.Cleanup(func() {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("roll back: %v", err)
		}
	})
	return storetest.CallerTx{Tx: sqlite.Join(tx), Commit: tx.Commit, Rollback: tx.Rollback}
}

// effect writes the caller's row by the means of the driver.
func effect(ctx context.Context, tx store.Tx, id string) error {
	_, err := sqlite.Tx(store.WithTx(ctx, tx)).ExecContext(ctx, `INSERT INTO effects (id) VALUES (?)`, id)
	return err
}

func effects(t testing.TB, s store.Store) (ids []string) {
	t.Helper()
	own, ok := s.(*sqlite.Store)
	if !ok {
		t.Fatalf("a %T is no SQLite store", s)
	}
	rows, err := own.Reader().QueryContext(t.Context(), `SELECT id FROM effects ORDER BY n`)
	if err != nil {
		t.Fatalf("read effects: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatalf("read effects: %v", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("read effects: %v", err)
	}
	return ids
}

func conformanceWorker() storetest.Worker {
	return storetest.Worker{
		Open: func(o storetest.Options) (store.Store, error) {
			return sqlite.OpenConfig(os.Getenv(pathVariable), sqlite.Config{History: o.History})
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
