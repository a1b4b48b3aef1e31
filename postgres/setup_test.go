package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// crowd is how many set up at once.
const crowd = 20

// setupTogether sets up an empty database from many goroutines, each with a pool of its own, and with each of the
// processes.
func setupTogether(t *testing.T, url string, c postgres.Config, processes ...*setupProcess) {
	t.Helper()
	small := func(p *pgxpool.Config) { p.MaxConns = 2 }
	stores := make([]*postgres.Store, crowd)
	for i := range stores {
		stores[i] = newStore(t, newPool(t, url, small), c)
	}
	var group sync.WaitGroup
	start := make(chan struct{})
	for i, s := range stores {
		group.Go(func() {
			<-start
			if err := setupAndPublish(t.Context(), s, fmt.Sprintf("goroutine %d", i)); err != nil {
				t.Errorf("setup by a goroutine: %v", err)
			}
		})
	}
	close(start)
	for _, p := range processes {
		if err := p.word.Close(); err != nil {
			t.Errorf("tell a process: %v", err)
		}
	}
	for _, p := range processes {
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("setup by a process: %v\n%s", err, p.errors.String())
		}
	}
	group.Wait()
	if t.Failed() {
		return
	}
	d := newDesk(t, newPool(t, url), c)
	d.now = time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	for range crowd + len(processes) {
		got := d.claim(100, "h")
		if len(got) != 1 {
			t.Fatalf("claimed %q of one key", idsOf(got))
		}
		d.complete(got...)
	}
	d.wantCounts(0, 0)
	var n int
	err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM relaybus_meta WHERE version = 1`).Scan(&n)
	if err != nil || n != 1 {
		t.Errorf("%d rows have the version, %v", n, err)
	}
}

// S1 F17: twenty processes and twenty goroutines set up an empty database at once.
func TestSetupTogether(t *testing.T) {
	t.Parallel()
	url := newDatabaseURL(t)
	processes := make([]*setupProcess, crowd)
	for i := range processes {
		processes[i] = startSetup(t, url)
	}
	setupTogether(t, url, postgres.Config{}, processes...)
	wantNoLocks(t, newPool(t, url))
}

// S1 F17: stores of different prefixes, all of which find that their schema has to be created.
func TestSetupTogetherInNewSchema(t *testing.T) {
	t.Parallel()
	url := newDatabaseURL(t)
	var group sync.WaitGroup
	for i := range 5 {
		s := newStore(t, newPool(t, url), postgres.Config{Schema: "new", Prefix: fmt.Sprintf("p%d_", i)})
		group.Go(func() {
			if err := s.Setup(t.Context()); err != nil {
				t.Errorf("setup: %v", err)
			}
		})
	}
	group.Wait()
}

// S1 F17: a setup whose process is killed leaves nothing behind, and needs no repair.
func TestSetupKilled(t *testing.T) {
	t.Parallel()
	url := newDatabaseURL(t)
	for range 3 {
		killInSetup(t, url)
	}
	pool := newPool(t, url)
	s := newStore(t, pool, postgres.Config{})
	if err := s.Setup(t.Context()); err != nil {
		t.Errorf("setup after killed ones: %v", err)
	}
	wantNoLocks(t, pool)
}

// F38: a setup that waits for a lock gives up when it was told, says so, and can be run again.
func TestSetupLockTimeout(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(t *testing.T, s *postgres.Store, tx pgx.Tx) error{
		"another setup": func(t *testing.T, s *postgres.Store, tx pgx.Tx) error {
			t.Helper()
			text, key := postgres.SetupLock(s)
			_, err := tx.Exec(t.Context(), text, key)
			return err
		},
		"a table of the name": func(t *testing.T, _ *postgres.Store, tx pgx.Tx) error {
			t.Helper()
			_, err := tx.Exec(t.Context(), `CREATE TABLE relaybus_events ()`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, newDatabaseURL(t))
			s := newStore(t, pool, postgres.Config{SetupLockTimeout: 20 * time.Millisecond})
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatalf("begin: %v", err)
			}
			if err := hold(t, s, tx); err != nil {
				t.Fatalf("hold the lock: %v", err)
			}
			err = s.Setup(t.Context())
			typed, ok := errors.AsType[*store.Error](err)
			if !ok || !errors.Is(typed, store.ErrConflict) || typed.Detail == "" {
				t.Errorf("setup while the lock is held: %v", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatalf("roll back: %v", err)
			}
			if err := s.Setup(t.Context()); err != nil {
				t.Errorf("setup afterwards: %v", err)
			}
			wantNoLocks(t, pool)
		})
	}
}

// F40 F43: columns that a newer version has added, while this one has statements prepared, change nothing for it.
func TestColumnsAreAdded(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{History: true})
	work(d)
	d.exec(`DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'relaybus_%' LOOP
		EXECUTE format('ALTER TABLE %I ADD COLUMN added text DEFAULT ''x''', name); END LOOP; END $$`)
	d.exec(`UPDATE relaybus_meta SET version = 2, oldest = 1`)
	d.publish(d.events(10, false, "h")...)
	d.publish(append(d.events(1, true, "g"), d.events(40, true, "h")...)...)
	d.publish(d.event("known", "", "h"))
	d.publish(d.event("known", "", "h", "g"))
	if got := d.claim(100, "h", "g"); len(got) == 0 {
		t.Error("nothing was claimed")
	} else {
		d.settle(store.Bury, got[:2]...)
		d.settle(store.Reschedule, got[2:4]...)
		d.complete(got[4:]...)
	}
	if _, err := d.s.List(t.Context(), store.Filter{}, store.Page{Limit: 100}); err != nil {
		t.Errorf("list: %v", err)
	}
	if _, err := d.s.Purge(t.Context(), store.PurgeRequest{CompletedBefore: d.now.Add(time.Hour), DeadBefore: d.now.Add(time.Hour), Limit: 1000}); err != nil {
		t.Errorf("purge: %v", err)
	}
}
