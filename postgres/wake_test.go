package postgres_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// ear listens as a bus does.
type ear struct {
	// heard gets a token for signals.
	heard chan struct{}
	ended chan error
}

// listen has the store signal until the test ends. Its first signal has come.
func (d *desk) listen() *ear {
	d.t.Helper()
	e := &ear{heard: make(chan struct{}, 1), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(d.t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		e.ended <- d.s.Wake(ctx, func() {
			select {
			case e.heard <- struct{}{}:
			default:
			}
		})
	})
	d.t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	e.await(d.t)
	return e
}

func (e *ear) await(tb testing.TB) {
	tb.Helper()
	select {
	case <-e.heard:
	case err := <-e.ended:
		tb.Fatalf("listening has ended: %v", err)
	}
}

// awaitPublish returns when something that is published now is heard of.
func (e *ear) awaitPublish(publisher *desk) {
	publisher.t.Helper()
	for {
		publisher.publish(publisher.events(1, false, "h")...)
		select {
		case <-e.heard:
			return
		case err := <-e.ended:
			publisher.t.Fatalf("listening has ended: %v", err)
		default:
		}
	}
}

// F54: the hooks of the caller's pool don't come between the store and its notifications, and are asked who to be.
func TestWakeBesideHooksOfThePool(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(c *pgxpool.Config){
		"notifications of the caller's own": func(c *pgxpool.Config) {
			c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
		},
		"changing passwords": func(c *pgxpool.Config) {
			user := c.ConnConfig.User
			c.ConnConfig.User = "nobody_of_that_name"
			c.BeforeConnect = func(_ context.Context, each *pgx.ConnConfig) error {
				each.User = user
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newPool(t, newDatabaseURL(t), hook), postgres.Config{})
			d.listen().awaitPublish(d.second())
		})
	}
}

// F54: a server that ends idle sessions leaves the one that listens.
func TestWakeOutlivesIdleSessions(t *testing.T) {
	t.Parallel()
	url := newDatabaseURL(t)
	administer(t, t.Context(), url, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_session_timeout = ''100ms''', current_database()); END $$`)
	keep := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["idle_session_timeout"] = "0" }
	d := &desk{t: t, s: newStore(t, newPool(t, url), postgres.Config{})}
	if err := d.s.Setup(t.Context()); err != nil {
		t.Fatalf("set up: %v", err)
	}
	watch := newPool(t, url, keep)
	e := d.listen()
	await(t, "it has been idle for ten times as long as the others may", func() (idle bool) {
		err := watch.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND query LIKE 'listen %' AND pid <> pg_backend_pid() AND clock_timestamp() - state_change > '1s')`).Scan(&idle)
		if err != nil {
			t.Fatalf("look at the session: %v", err)
		}
		select {
		case err := <-e.ended:
			t.Fatalf("listening has ended: %v", err)
		default:
		}
		return idle
	})
	e.awaitPublish(newDesk(t, watch, postgres.Config{}))
}

// warned is a log that tells of warnings.
type warned struct {
	slog.Handler

	told func()
}

func (warned) Enabled(context.Context, slog.Level) bool { return true }

func (w warned) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		w.told()
	}
	return nil
}

// F43 F54: behind a pooler in transaction mode nothing listens, as whoever gets the connection next would be notified;
// that is said once, and listening goes on without a signal.
func TestWakeBehindPgBouncer(t *testing.T) {
	t.Parallel()
	b := newBouncer(t, pgserver.PgBouncerOptions{PoolSize: 1})
	url := through(t, b, newDatabaseURL(t), "exec")
	told := make(chan struct{}, 10)
	d := newDesk(t, newPool(t, url), postgres.Config{Logger: slog.New(warned{told: func() { told <- struct{}{} }})})
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.s.Wake(ctx, func() {}) }()
		if len(told) == 0 {
			told <- <-told
		}
		var listens int
		if err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_listening_channels()`).Scan(&listens); err != nil || listens != 0 {
			t.Errorf("the connection of all clients listens to %d channels, %v", listens, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("listening: %v", err)
		}
	}
	if len(told) != 1 {
		t.Errorf("it was said %d times", len(told))
	}
}

// F61: publishes in callers' transactions that follow each other closely don't keep the notifications back.
func TestJoinedPublishesInARowAreHeardOf(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	if err := d.s.RecordHandlers(t.Context(), []store.HandlerEntry{{Handler: store.Handler{ID: "h"}}}, d.now); err != nil {
		t.Fatalf("record handlers: %v", err)
	}
	e := d.second().listen()
	tx := begin(t, d.pool)
	const most = 3000 // Notifications are to come every few of them.
	for range most {
		if _, err := d.s.Append(t.Context(), tx.Tx, d.events(1, false, "h"), d.now); err != nil {
			t.Fatalf("append: %v", err)
		}
		select {
		case <-e.heard:
			return
		default:
		}
	}
	t.Errorf("nothing was heard of %d publishes in a row", most)
}
