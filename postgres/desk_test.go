package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// desk is a store that is set up, and who publishes and works on it.
type desk struct {
	t    testing.TB
	s    *postgres.Store
	pool *pgxpool.Pool
	now  time.Time
	ids  int
}

func newDesk(tb testing.TB, pool *pgxpool.Pool, c postgres.Config) *desk {
	tb.Helper()
	d := &desk{t: tb, pool: pool, s: newStore(tb, pool, c), now: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)}
	if err := d.s.Setup(tb.Context()); err != nil {
		tb.Fatalf("set up: %v", err)
	}
	return d
}

func (d *desk) event(id, key string, handlers ...string) store.NewEvent {
	e := store.NewEvent{
		Event: store.Event{
			ID: id, Type: "order.placed.v1", Source: "orders", Key: key, Payload: []byte(`{}`), CreatedAt: d.now,
		},
		DueAt: d.now,
	}
	for _, h := range handlers {
		e.Handlers = append(e.Handlers, store.Handler{ID: h})
	}
	return e
}

// events makes n events; each has a key of its own when keyed.
func (d *desk) events(n int, keyed bool, handlers ...string) []store.NewEvent {
	list := make([]store.NewEvent, n)
	for i := range list {
		d.ids++
		key := ""
		if keyed {
			key = fmt.Sprintf("key-%d", d.ids)
		}
		list[i] = d.event(fmt.Sprintf("e-%d", d.ids), key, handlers...)
	}
	return list
}

func (d *desk) tryPublish(events ...store.NewEvent) error {
	return d.s.Transact(d.t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		_, err := d.s.Append(ctx, tx, events, d.now)
		return err
	})
}

func (d *desk) publish(events ...store.NewEvent) {
	d.t.Helper()
	if err := d.tryPublish(events...); err != nil {
		d.t.Fatalf("publish: %v", err)
	}
}

func (d *desk) request(limit int, handlers ...string) store.ClaimRequest {
	r := store.ClaimRequest{Owner: "w", Limit: limit, Now: d.now, Lease: 30 * time.Second}
	for _, h := range handlers {
		r.Handlers = append(r.Handlers, store.HandlerLimit{Handler: store.Handler{ID: h}, Limit: limit})
	}
	return r
}

func (d *desk) claim(limit int, handlers ...string) []store.Claimed {
	d.t.Helper()
	result, err := d.s.Claim(d.t.Context(), d.request(limit, handlers...))
	if err != nil {
		d.t.Fatalf("claim: %v", err)
	}
	return result.Deliveries
}

// settle ends claims in one way, and wants all of them to be ours.
func (d *desk) settle(action store.Action, claimed ...store.Claimed) {
	d.t.Helper()
	list := make([]store.Settlement, len(claimed))
	for i, c := range claimed {
		list[i] = store.Settlement{Lease: c.Lease, Action: action, DueAt: d.now, Error: "it failed"}
	}
	ok, err := d.s.Settle(d.t.Context(), "w", list, d.now)
	if err != nil {
		d.t.Fatalf("%v: %v", action, err)
	}
	for i, c := range claimed {
		if len(ok) != len(claimed) || !ok[i] {
			d.t.Fatalf("%v of %s was refused", action, c.Event.ID)
		}
	}
}

func (d *desk) complete(claimed ...store.Claimed) {
	d.t.Helper()
	d.settle(store.Complete, claimed...)
}

func (d *desk) stats() store.Stats {
	d.t.Helper()
	stats, err := d.s.Stats(d.t.Context(), d.now)
	if err != nil {
		d.t.Fatalf("stats: %v", err)
	}
	return stats
}

// wantCounts compares the numbers of pending and running deliveries; none is dead.
func (d *desk) wantCounts(pending, running int64) {
	d.t.Helper()
	if s := d.stats(); s.Pending != pending || s.Running != running || s.Dead != 0 {
		d.t.Errorf("%d pending, %d running and %d dead, want %d, %d and none", s.Pending, s.Running, s.Dead, pending, running)
	}
}

func (d *desk) exec(text string) {
	d.t.Helper()
	if _, err := d.pool.Exec(d.t.Context(), text); err != nil {
		d.t.Fatalf("%s: %v", text, err)
	}
}

func idsOf(claimed []store.Claimed) []string {
	ids := make([]string, len(claimed))
	for i, c := range claimed {
		ids[i] = c.Event.ID
	}
	return ids
}
