package postgres_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// F09: however many listings, statistics, changes by operators and purges stand still, workers go on.
func TestSlowReportsLeaveConnectionsToWorkers(t *testing.T) {
	t.Parallel()
	for _, connections := range []int32{2, 3, 4} {
		t.Run(strconv.Itoa(int(connections)), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{Connections: connections})
			d.publish(d.events(4, false, "h")...)
			runs := d.claim(2, "h")
			release := d.block(`LOCK TABLE relaybus_history, relaybus_handlers IN ACCESS EXCLUSIVE MODE`)
			defer release()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var group sync.WaitGroup
			for _, call := range []func() error{
				func() error { _, err := d.s.Stats(ctx, d.now); return err },
				func() error { _, err := d.s.List(ctx, store.Filter{}, store.Page{Limit: 1}); return err },
				func() error { _, _, err := d.s.GetEvent(ctx, "e-1"); return err },
				func() error { _, err := d.s.Handlers(ctx); return err },
				func() error { return d.s.PauseHandler(ctx, "h", true, d.now) },
				func() error { return d.s.Skip(ctx, store.DeliveryID{EventID: "e-1", Handler: "h"}, d.now) },
				func() error { _, err := d.s.DropPending(ctx, "h", 1, d.now); return err },
				func() error {
					_, err := d.s.Purge(ctx, store.PurgeRequest{CompletedBefore: d.now, DeadBefore: d.now, Limit: 1})
					return err
				},
			} {
				group.Go(func() {
					if err := call(); ctx.Err() == nil {
						t.Errorf("a call did not wait, and came back with %v", err)
					}
				})
			}
			d.awaitWaiters(int(max(1, connections/2)))
			within, stop := context.WithTimeout(t.Context(), 4*time.Second)
			defer stop()
			leases := []store.Lease{runs[0].Lease, runs[1].Lease}
			if ok, err := d.s.Extend(within, "w", leases, d.now, time.Minute); err != nil || !ok[0] || !ok[1] {
				t.Errorf("extend: %v, %v", ok, err)
			}
			ok, err := d.s.Settle(within, "w", []store.Settlement{{Lease: runs[1].Lease, Action: store.Reschedule, DueAt: d.now}}, d.now)
			if err != nil || !ok[0] {
				t.Errorf("settle: %v, %v", ok, err)
			}
			if err := d.s.Relinquish(within, "w", d.now); err != nil {
				t.Errorf("relinquish: %v", err)
			}
			cancel()
			release()
			group.Wait()
		})
	}
}

// F21: what a pool does with the connections that it lends out does not take from the store what it has set on its own.
func TestOwnSessionsKeepTheirSettings(t *testing.T) {
	t.Parallel()
	discard := func(conn *pgx.Conn) bool {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "DISCARD ALL")
		return err == nil
	}
	for name, hook := range map[string]func(c *pgxpool.Config){
		"after a release": func(c *pgxpool.Config) { c.AfterRelease = discard },
		"before an acquire": func(c *pgxpool.Config) {
			c.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) { return discard(conn), nil }
		},
		"before an acquire, the older way": func(c *pgxpool.Config) {
			c.BeforeAcquire = func(_ context.Context, conn *pgx.Conn) bool { return discard(conn) } //nolint:staticcheck // callers may still set it
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newPool(t, newDatabaseURL(t), hook, func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // What is prepared by name would be discarded.
			}), postgres.Config{})
			d.exec(`CREATE TABLE seen (lock_timeout text, idle text, seqscan text);
				CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (current_setting('lock_timeout'),
					current_setting('idle_in_transaction_session_timeout'), current_setting('enable_seqscan')); RETURN NULL; END $$;
				CREATE TRIGGER see AFTER INSERT ON relaybus_claims FOR EACH ROW EXECUTE FUNCTION see()`)
			for range 3 {
				d.publish(d.events(1, false, "h")...)
				d.complete(d.claim(1, "h")...)
			}
			var all, fit int
			err := d.pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE (lock_timeout, idle, seqscan) = ('5s', '10s', 'off')) FROM seen`).Scan(&all, &fit)
			if err != nil || all == 0 || fit != all {
				t.Errorf("%d of %d claims had the settings of the store: %v", fit, all, err)
			}
		})
	}
}

// B2: a closed store says so, to whatever it is asked.
func TestClosedStoreRefusesEverything(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	d.publish(d.event("e", "", "h"))
	lease := d.claim(1, "h")[0].Lease
	if err := d.s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	ctx := t.Context()
	for _, owner := range []string{"w", "unknown"} {
		for name, call := range map[string]func() error{
			"extend": func() error { _, err := d.s.Extend(ctx, owner, nil, d.now, time.Minute); return err },
			"settle": func() error {
				_, err := d.s.Settle(ctx, owner, []store.Settlement{{Lease: lease, Action: store.Complete}}, d.now)
				return err
			},
			"settle nothing": func() error { _, err := d.s.Settle(ctx, owner, nil, d.now); return err },
			"relinquish":     func() error { return d.s.Relinquish(ctx, owner, d.now) },
			"claim":          func() error { _, err := d.s.Claim(ctx, d.request(1, owner)); return err },
			"requeue none":   func() error { return d.s.Requeue(ctx, nil, d.now) },
			"drop none":      func() error { _, err := d.s.DropPending(ctx, owner, 0, d.now); return err },
			"record none":    func() error { return d.s.RecordHandlers(ctx, nil, d.now) },
			"stats":          func() error { _, err := d.s.Stats(ctx, d.now); return err },
		} {
			if err := call(); !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s of %s: %v, want ErrClosed", name, owner, err)
			}
		}
	}
}
