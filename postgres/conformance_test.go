package postgres_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, backend())
}

// urlVariable tells a worker process which database to open.
const urlVariable = "RELAYBUS_POSTGRES_TEST_URL"

func backend() storetest.Backend {
	points := postgres.CrashPoints()
	return storetest.Backend{
		Name: "postgres",
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
	list []*postgres.Store
}

func (o *opened) add(s *postgres.Store) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, s)
}

func (o *opened) sum(f func(*postgres.Store) int64) func() int64 {
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
	return databaseAt(tb, newDatabaseURL(tb))
}

// databaseAt is an empty database with a table for the callers' rows.
func databaseAt(tb testing.TB, url string) storetest.Database {
	tb.Helper()
	administer(tb, tb.Context(), url, `CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL)`)
	stores := &opened{}
	// Each store has a pool of its own, as each process has.
	var mu sync.Mutex
	pools := make(map[store.Store]*pgxpool.Pool)
	poolOf := func(s store.Store) *pgxpool.Pool {
		mu.Lock()
		defer mu.Unlock()
		return pools[s]
	}
	return storetest.Database{
		Open: func(tb testing.TB, o storetest.Options) store.Store {
			tb.Helper()
			pool := newPool(tb, url)
			s := newStore(tb, pool, postgres.Config{History: o.History})
			stores.add(s)
			mu.Lock()
			defer mu.Unlock()
			pools[s] = pool
			return s
		},
		Begin:   func(tb testing.TB, s store.Store) storetest.CallerTx { tb.Helper(); return begin(tb, poolOf(s)) },
		Effect:  effect,
		Effects: func(tb testing.TB, s store.Store) []string { tb.Helper(); return effects(tb, poolOf(s)) },
		Command: func(tb testing.TB) *exec.Cmd {
			tb.Helper()
			cmd := exec.CommandContext(tb.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), urlVariable+"="+url)
			return cmd
		},
		Counters: storetest.Counters{
			RowsRead:     stores.sum(postgres.RowsRead),
			Transactions: stores.sum(postgres.Transactions),
			Commands:     stores.sum(postgres.RoundTrips),
		},
	}
}

func begin(tb testing.TB, pool *pgxpool.Pool) storetest.CallerTx {
	tb.Helper()
	ctx := tb.Context()
	tx, err := pool.Begin(ctx)
	if err != nil {
		tb.Fatalf("begin: %v", err)
	}
	tb.Cleanup(func() {
		if err := tx.Rollback(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			tb.Errorf("roll back: %v", err)
		}
	})
	return storetest.CallerTx{
		Tx:       postgres.Join(tx),
		Commit:   func() error { return tx.Commit(ctx) },
		Rollback: func() error { return tx.Rollback(ctx) },
	}
}

// effect writes the caller's row by the means of the driver.
func effect(ctx context.Context, tx store.Tx, id string) error {
	_, err := postgres.Tx(store.WithTx(ctx, tx)).Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, id)
	return err
}

func effects(tb testing.TB, pool *pgxpool.Pool) []string {
	tb.Helper()
	rows, err := pool.Query(tb.Context(), `SELECT id FROM effects ORDER BY n`)
	if err != nil {
		tb.Fatalf("read effects: %v", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Fatalf("read effects: %v", err)
	}
	return ids
}

func conformanceWorker() storetest.Worker {
	return storetest.Worker{
		Open: func(o storetest.Options) (store.Store, error) {
			pool, err := pgxpool.New(context.Background(), os.Getenv(urlVariable))
			if err != nil {
				return nil, err
			}
			return postgres.New(pool, postgres.Config{History: o.History})
		},
		Effect: effect,
		Arm: func(s store.Store, point string, nth int, crash func()) error {
			own, ok := s.(*postgres.Store)
			if !ok {
				return errors.New("not a PostgreSQL store")
			}
			return postgres.Arm(own, point, nth, crash)
		},
	}
}
