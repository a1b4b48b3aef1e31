package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// queries counts the statements about deliveries of the connections that it traces.
type queries struct{ n atomic.Int64 }

func (q *queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, s pgx.TraceQueryStartData) context.Context {
	if strings.Contains(s.SQL, "relaybus_deliveries") {
		q.n.Add(1)
	}
	return ctx
}

func (*queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// dead publishes n events, and buries their deliveries.
func (d *desk) dead(n int) []store.DeliveryID {
	d.t.Helper()
	list := d.events(n, false, "h")
	d.publish(list...)
	got := d.claim(n, "h")
	if len(got) != n {
		d.t.Fatalf("claimed %d, want %d", len(got), n)
	}
	d.settle(store.Bury, got...)
	ids := make([]store.DeliveryID, n)
	for i := range list {
		ids[i] = store.DeliveryID{EventID: list[i].ID, Handler: "h"}
	}
	return ids
}

// P3: to requeue a list costs as many statements as to requeue one.
func TestRequeueCostsTheSameForAnyNumber(t *testing.T) {
	t.Parallel()
	q := &queries{}
	d := newDesk(t, newPool(t, newDatabaseURL(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = q }), postgres.Config{})
	cost := func(ids []store.DeliveryID) int64 {
		before := q.n.Load()
		if err := d.s.Requeue(t.Context(), ids, d.now); err != nil {
			t.Fatalf("requeue %d: %v", len(ids), err)
		}
		return q.n.Load() - before
	}
	one := cost(d.dead(1))
	d.complete(d.claim(1, "h")...)
	ids := d.dead(100)
	if many := cost(append(ids, ids[0])); many != one {
		t.Errorf("%d statements for %d deliveries, %d for one", many, len(ids), one)
	}
	d.wantCounts(100, 0)
	for _, list := range [][]store.DeliveryID{{{EventID: "none", Handler: "h"}}, {ids[0], {EventID: ids[0].EventID, Handler: "none"}}} {
		if err := d.s.Requeue(t.Context(), list, d.now); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("requeue of %v: %v, want ErrNotFound", list, err)
		}
	}
	if err := d.s.Requeue(t.Context(), ids, d.now); !errors.Is(err, store.ErrState) {
		t.Errorf("requeue of pending ones: %v, want ErrState", err)
	}
}

// L1: when the context of a call ends, no further step of its transaction begins, and nothing is changed.
func TestNoStepAfterTheContext(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	d.exec(`CREATE TABLE steps (n int)`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := postgres.Write(ctx, d.s, func(exec func(text string) error) error {
		if err := exec(`INSERT INTO steps VALUES (1)`); err != nil {
			return err
		}
		cancel()
		if err := exec(`INSERT INTO steps VALUES (2)`); !errors.Is(err, store.ErrTimeout) {
			t.Errorf("a step after the end of the context: %v, want ErrTimeout", err)
		}
		return nil
	})
	if !errors.Is(err, store.ErrTimeout) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("write: %v, want ErrTimeout", err)
	}
	var n int
	if err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM steps`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows were written, %v", n, err)
	}
}

// B9: who requeues beside somebody else is told of what it has changed, and goes on to what is left.
func TestRequeueBesideSomebodyElse(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"filter", "list"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
			ids := d.dead(5)
			tx, err := d.pool.Begin(t.Context())
			if err != nil {
				t.Fatalf("begin: %v", err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // It is committed if all goes well.
			// Two of the oldest three.
			if _, err := tx.Exec(t.Context(), `DELETE FROM relaybus_deliveries WHERE event IN
				(SELECT seq FROM relaybus_events ORDER BY seq LIMIT 2)`); err != nil {
				t.Fatalf("delete: %v", err)
			}
			n, done := 0, make(chan error, 1)
			go func() {
				if what == "list" {
					done <- d.s.Requeue(t.Context(), ids[:3], d.now)
					return
				}
				var err error
				n, err = d.s.RequeueWhere(t.Context(), store.Filter{Handler: "h"}, 3, d.now)
				done <- err
			}()
			d.awaitWaiters(1)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatalf("commit: %v", err)
			}
			err = <-done
			s := d.stats()
			if what == "list" {
				if !errors.Is(err, store.ErrState) || s.Dead != 3 {
					t.Errorf("requeue: %v, and %d are dead; want ErrState, and 3", err, s.Dead)
				}
				return
			}
			if err != nil || n != 3 || s.Pending != 3 || s.Dead != 0 {
				t.Errorf("requeued %d: %v; %d are pending and %d dead, want 3 and none", n, err, s.Pending, s.Dead)
			}
		})
	}
}

// Z2 F09: while an operator waits for a claim that stands still, others settle deliveries of the handler's keys.
func TestOperatorBesideStalledClaim(t *testing.T) {
	t.Parallel()
	for name, operate := range map[string]func(d *desk) error{
		"bury": func(d *desk) error {
			return d.s.BuryPending(d.t.Context(), store.DeliveryID{EventID: "waits", Handler: "h"}, "no", d.now)
		},
		"reschedule": func(d *desk) error {
			return d.s.ReschedulePending(d.t.Context(), store.DeliveryID{EventID: "waits", Handler: "h"}, d.now, d.now)
		},
		"drop":   func(d *desk) error { _, err := d.s.DropPending(d.t.Context(), "h", 1, d.now); return err },
		"cancel": func(d *desk) error { return d.s.CancelEvent(d.t.Context(), "waits", d.now) },
		"skip": func(d *desk) error {
			err := d.s.Skip(d.t.Context(), store.DeliveryID{EventID: "waits", Handler: "h"}, d.now)
			if !errors.Is(err, store.ErrState) {
				return fmt.Errorf("skip of a pending one: %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
			d.publish(d.event("runs", "key", "h"), d.event("waits", "key", "h"))
			runs := d.claim(10, "h")
			if len(runs) != 1 {
				t.Fatalf("claimed %q", idsOf(runs))
			}
			release := d.block(`SELECT FROM relaybus_owners FOR SHARE`) // as a claim does
			defer release()
			done := make(chan error, 1)
			go func() { done <- operate(d) }()
			d.awaitWaiters(1)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			ok, err := d.s.Settle(ctx, "w", []store.Settlement{{Lease: runs[0].Lease, Action: store.Complete}}, d.now)
			if err != nil || !ok[0] {
				t.Errorf("settle: %v, %v", ok, err)
			}
			select {
			case err := <-done:
				t.Errorf("the operator did not wait for the claim: %v", err)
			default:
			}
			release()
			if err := <-done; err != nil {
				t.Errorf("operate: %v", err)
			}
		})
	}
}
