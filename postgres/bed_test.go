package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/postgres"
)

// newDatabaseURL makes an empty database that is dropped when the test ends.
func newDatabaseURL(tb testing.TB) string {
	tb.Helper()
	admin, err := cluster.AdminURL(tb.Context())
	if err != nil {
		tb.Fatalf("find PostgreSQL: %v", err)
	}
	name := pgserver.NewDatabaseName()
	administer(tb, tb.Context(), admin, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
	tb.Cleanup(func() {
		administer(tb, context.WithoutCancel(tb.Context()), admin, "DROP DATABASE "+name+" WITH (FORCE)")
	})
	url, err := cluster.URL(tb.Context(), name)
	if err != nil {
		tb.Fatalf("find PostgreSQL: %v", err)
	}
	return url
}

//nolint:revive // A cleanup has no other context.
func administer(tb testing.TB, ctx context.Context, url, text string) {
	tb.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	_, err = conn.Exec(ctx, text)
	if closed := conn.Close(ctx); err == nil {
		err = closed
	}
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
}

// newPool opens a pool that is closed when the test ends.
func newPool(tb testing.TB, url string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatalf("parse url: %v", err)
	}
	c.MaxConns = 8
	for _, option := range options {
		option(c)
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), c)
	if err != nil {
		tb.Fatalf("open pool: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

func newStore(tb testing.TB, pool *pgxpool.Pool, c postgres.Config) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(pool, c)
	if err != nil {
		tb.Fatalf("new store: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

// exampleDatabase makes a database for an example, which has no testing.TB.
func exampleDatabase(ctx context.Context) (url string, drop func() error, err error) {
	admin, err := cluster.AdminURL(ctx)
	if err != nil {
		return "", nil, err
	}
	name := pgserver.NewDatabaseName()
	run := func(text string) error {
		conn, err := pgx.Connect(ctx, admin)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, text)
		return errors.Join(err, conn.Close(ctx))
	}
	if err := run("CREATE DATABASE " + name); err != nil {
		return "", nil, err
	}
	url, err = cluster.URL(ctx, name)
	return url, func() error { return run("DROP DATABASE " + name + " WITH (FORCE)") }, err
}

// await returns once it holds, which is looked at again and again.
func await(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), fleettest.Patience)
	defer cancel()
	for !holds() {
		if !fleettest.Wait(ctx, 5*time.Millisecond) {
			tb.Fatalf("not within %v: %s", fleettest.Patience, what)
		}
	}
}
