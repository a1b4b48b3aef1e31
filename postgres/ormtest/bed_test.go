package ormtest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/postgres"
)

// placed is the type of the events of these tests.
const placed = "order.placed"

// newDatabaseURL makes a database with a table of the service's own, and drops it when the test ends.
func newDatabaseURL(t *testing.T) string {
	t.Helper()
	admin, err := cluster.AdminURL(t.Context())
	if err != nil {
		t.Fatalf("find PostgreSQL: %v", err)
	}
	name := pgserver.NewDatabaseName()
	administer(t, t.Context(), admin, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
	t.Cleanup(func() {
		administer(t, context.WithoutCancel(t.Context()), admin, "DROP DATABASE "+name+" WITH (FORCE)")
	})
	url, err := cluster.URL(t.Context(), name)
	if err != nil {
		t.Fatalf("find PostgreSQL: %v", err)
	}
	administer(t, t.Context(), url, "CREATE TABLE orders (n bigint GENERATED ALWAYS AS IDENTITY, id text PRIMARY KEY)")
	return url
}

//nolint:revive // A cleanup has no other context.
func administer(t *testing.T, ctx context.Context, url, text string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	_, err = conn.Exec(ctx, text)
	if closed := conn.Close(ctx); err == nil {
		err = closed
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// openDB opens a database by the name of a driver of database/sql.
func openDB(t *testing.T, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

// bed is a bus on a database, and what it has handled.
type bed struct {
	*relaybus.Bus
	t     *testing.T
	store *postgres.Store
	pool  *pgxpool.Pool
	url   string

	mu      sync.Mutex
	handled []string
}

// newBed makes a bus with one handler on a new database.
func newBed(t *testing.T, c postgres.Config, change func(*relaybus.Config)) *bed {
	t.Helper()
	return newBedAt(t, newDatabaseURL(t), c, change)
}

func newBedAt(t *testing.T, url string, c postgres.Config, change func(*relaybus.Config)) *bed {
	t.Helper()
	b := &bed{t: t, url: url}
	var err error
	if b.pool, err = pgxpool.New(t.Context(), url); err != nil {
		t.Fatalf("open pool: %v", err)
	}
	t.Cleanup(b.pool.Close)
	if b.store, err = postgres.New(b.pool, c); err != nil {
		t.Fatalf("new store: %v", err)
	}
	t.Cleanup(func() {
		if err := b.store.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	cfg := relaybus.Config{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Retry:  relaybus.RetryPolicy{Delay: func(int, error) time.Duration { return 0 }},
	}
	if change != nil {
		change(&cfg)
	}
	if b.Bus, err = relaybus.New(b.store, cfg); err != nil {
		t.Fatalf("new bus: %v", err)
	}
	if err := b.Subscribe(relaybus.Handle("ship", []string{placed}, b.handle)); err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	if err := b.store.Setup(t.Context()); err != nil {
		t.Fatalf("set up: %v", err)
	}
	return b
}

func (b *bed) handle(_ context.Context, e *relaybus.RawEvent) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handled = append(b.handled, e.ID)
	return nil
}

// order is an event with an id.
func order(id string, options ...relaybus.PublishOption) relaybus.Message {
	return relaybus.Raw(placed, json.RawMessage(`{"id":"`+id+`"}`), append(options, relaybus.ID(id))...)
}

// wantHandled drains the bus and compares what it handled since the last time, in any order.
func (b *bed) wantHandled(want ...string) {
	b.t.Helper()
	if _, err := b.Drain(b.t.Context()); err != nil {
		b.t.Fatalf("drain: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.handled)
	slices.Sort(want)
	if !slices.Equal(b.handled, want) {
		b.t.Errorf("handled %q, want %q", b.handled, want)
	}
	b.handled = nil
}

// wantOrders compares the rows of the service's own table.
func (b *bed) wantOrders(want ...string) {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), "SELECT id FROM orders ORDER BY id")
	if err != nil {
		b.t.Fatalf("read orders: %v", err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatalf("read orders: %v", err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.t.Errorf("the orders are %q, want %q", got, want)
	}
}
