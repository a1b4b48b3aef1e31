package ormtest_test

import (
	"context"
	"testing"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/postgres"
)

// B10 B12: a transactional handler whose commit the service's own tables refuse has used up an attempt each time, by
// whatever driver it works: it is no outage, which would pause the handler for ever.
func TestRefusedCommitSpendsAttempts(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"", "pgx", "postgres"} {
		t.Run("driver "+driver, func(t *testing.T) {
			t.Parallel()
			url := newDatabaseURL(t)
			administer(t, t.Context(), url, `CREATE TABLE bills (of text REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)`)
			var c postgres.Config
			if driver != "" {
				c.SQL = openDB(t, driver, url)
			}
			b := newBedAt(t, url, c, func(c *relaybus.Config) { c.Retry.MaxAttempts = 3 })
			attempts := 0
			err := b.Subscribe(relaybus.Handle("bill", []string{placed}, func(ctx context.Context, _ *relaybus.RawEvent) error {
				attempts++
				const text = "INSERT INTO bills (of) VALUES ('an order that is not there')"
				if tx, ok := postgres.SQLTxFrom(ctx); ok {
					_, err := tx.ExecContext(ctx, text)
					return err
				}
				_, err := postgres.Tx(ctx).Exec(ctx, text)
				return err
			}, relaybus.Transactional()))
			if err != nil {
				t.Fatalf("subscribe: %v", err)
			}
			if err := b.Transaction(t.Context(), func(ctx context.Context) error { return b.Publish(ctx, order("a")) }); err != nil {
				t.Fatalf("publish: %v", err)
			}
			b.wantHandled("a")
			stats, err := b.Statistics(t.Context())
			if err != nil || stats.Dead != 1 || stats.Pending != 0 || attempts != 3 {
				t.Errorf("%d dead and %d pending after %d attempts: %v; want one, none and 3", stats.Dead, stats.Pending, attempts, err)
			}
			if _, err := b.pool.Exec(t.Context(), "INSERT INTO orders (id) VALUES ('an order that is not there')"); err != nil {
				t.Fatalf("insert: %v", err)
			}
			if _, err := b.RequeueWhere(t.Context(), relaybus.Filter{Handler: "bill"}); err != nil {
				t.Fatalf("requeue: %v", err)
			}
			b.wantHandled()
			if stats, err = b.Statistics(t.Context()); err != nil || stats.Dead != 0 || stats.Pending != 0 || attempts != 4 {
				t.Errorf("%d dead and %d pending after %d attempts: %v; want none, none and 4", stats.Dead, stats.Pending, attempts, err)
			}
		})
	}
}
