package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// counter notes what the driver sends: each batch and each statement outside of one is a round trip, and so is each
// statement that is prepared.
type counter struct {
	mu    sync.Mutex
	cost  cost
	texts []string
}

// cost is what something took.
type cost struct{ trips, statements int }

func (c *counter) add(trips, statements int, text string) {
	if strings.Contains(text, "pg_notify") {
		return // It comes after the commit, whenever it comes.
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cost.trips += trips
	c.cost.statements += statements
	if text != "" {
		line := strings.Join(strings.Fields(text), " ")
		c.texts = append(c.texts, line[:min(len(line), 100)])
	}
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.add(1, 1, data.SQL)
	return ctx
}

func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.add(1, 0, "")
	return ctx
}

func (c *counter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.add(0, 1, data.SQL)
}

func (*counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *counter) TracePrepareStart(ctx context.Context, _ *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	c.add(1, 0, "prepare "+data.SQL)
	return ctx
}

func (*counter) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// of returns what f took.
func (c *counter) of(f func()) cost {
	c.mu.Lock()
	c.cost, c.texts = cost{}, nil
	c.mu.Unlock()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cost
}

// sent is what the last one sent.
func (c *counter) sent() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.texts[:min(len(c.texts), 30)], "\n")
}

// newCountedDesk has one connection for callers and one for the store, so that after the first time of each kind of
// work all statements are prepared.
func newCountedDesk(t *testing.T, c postgres.Config) (*desk, *counter) {
	t.Helper()
	n := &counter{}
	c.Connections = 1
	pool := newPool(t, newDatabaseURL(t), func(p *pgxpool.Config) { p.MaxConns, p.ConnConfig.Tracer = 1, n })
	return newDesk(t, pool, c), n
}

// same wants the cost to be the same for all sizes, and at most the given one.
func same(t *testing.T, what string, costs map[int]cost, most cost, sent string) {
	t.Helper()
	t.Log(what, costs)
	var first *cost
	for size, c := range costs {
		if first == nil {
			first = &c
		}
		if c != *first {
			t.Errorf("%s of %d costs %+v, and another number %+v; the last one sent\n%s", what, size, c, *first, sent)
		}
		if c.trips > most.trips || c.statements > most.statements {
			t.Errorf("%s of %d costs %+v, want at most %+v; the last one sent\n%s", what, size, c, most, sent)
		}
	}
}

// B4 S6: what a publish costs does not depend on how many events it has.
func TestCostOfPublish(t *testing.T) {
	t.Parallel()
	d, n := newCountedDesk(t, postgres.Config{})
	for _, keyed := range []bool{false, true} {
		name := map[bool]string{false: "a publish without keys", true: "a publish with keys"}[keyed]
		costs := make(map[int]cost)
		for _, size := range []int{10, 30, 1000} {
			d.publish(d.events(size, keyed, "h", "g")...)
			events := d.events(size, keyed, "h", "g")
			costs[size] = n.of(func() { d.publish(events...) })
		}
		// Begin, the locks of the keys, the events, the deliveries, commit.
		most := cost{5, 5}
		if !keyed {
			most = cost{4, 4}
		}
		same(t, name, costs, most, n.sent())
		d.publish(d.events(1, keyed, "h", "g")...)
		event := d.events(1, keyed, "h", "g")
		same(t, name, map[int]cost{1: n.of(func() { d.publish(event...) })}, cost{3, 3}, n.sent())
	}
}

// B4 B6: so it is with events that exist, whether there is something to add or not.
func TestCostOfPublishAgain(t *testing.T) {
	t.Parallel()
	d, n := newCountedDesk(t, postgres.Config{})
	for _, handlers := range [][]string{{"h"}, {"h", "new"}} {
		costs := make(map[int]cost)
		for _, size := range []int{2, 10, 500} {
			for range 2 { // The first time prepares.
				events := d.events(size, false, "h")
				d.publish(events...)
				for i := range events {
					events[i] = d.event(events[i].ID, "", handlers...)
				}
				costs[size] = n.of(func() { d.publish(events...) })
			}
		}
		same(t, fmt.Sprintf("a publish of known events for %v", handlers), costs, cost{6, 6}, n.sent())
	}
}

// S6: a claim from the lanes that the owner has and a settlement of each kind cost as much for one delivery as for many.
func TestCostOfClaimAndSettle(t *testing.T) {
	t.Parallel()
	for _, history := range []bool{false, true} {
		d, n := newCountedDesk(t, postgres.Config{History: history})
		// It takes all lanes.
		d.publish(d.events(4000, false, "h")...)
		for {
			got := d.claim(1000, "h")
			if len(got) == 0 {
				break
			}
			d.complete(got...)
		}
		for _, keyed := range []bool{false, true} {
			claims, completes, extends := make(map[int]cost), make(map[int]cost), make(map[int]cost)
			settles := map[store.Action]map[int]cost{store.Reschedule: {}, store.Release: {}, store.Bury: {}}
			var sent [3]string
			for _, size := range []int{1, 10, 100, 500} {
				for range 2 { // The first time prepares.
					d.publish(d.events(size, keyed, "h")...)
					var got []store.Claimed
					claims[size] = n.of(func() { got = d.claim(size, "h") })
					sent[0] = n.sent()
					for action := range settles {
						settles[action][size] = n.of(func() { d.settle(action, got...) })
						sent[1] = n.sent()
						if action == store.Bury {
							d.requeue(got)
						}
						got = d.claim(size, "h")
					}
					if len(got) != size {
						t.Fatalf("claimed %d of %d", len(got), size)
					}
					leases := make([]store.Lease, len(got))
					for i := range got {
						leases[i] = got[i].Lease
					}
					extends[size] = n.of(func() {
						if _, err := d.s.Extend(t.Context(), "w", leases, d.now, time.Hour); err != nil {
							t.Errorf("extend: %v", err)
						}
					})
					completes[size] = n.of(func() { d.complete(got...) })
					sent[2] = n.sent()
				}
			}
			name := fmt.Sprintf("keyed %v, history %v: ", keyed, history)
			same(t, name+"a claim", claims, cost{2, 10}, sent[0])
			for action := range settles {
				same(t, name+action.String(), settles[action], cost{1, 8}, sent[1])
			}
			same(t, name+"an extension", extends, cost{4, 5}, "")
			same(t, name+"a completion", completes, cost{1, 8}, sent[2])
		}
	}
}

// requeue makes what was buried due again.
func (d *desk) requeue(buried []store.Claimed) {
	d.t.Helper()
	for chunk := range slices.Chunk(buried, 100) {
		var ids []store.DeliveryID
		for _, c := range chunk {
			ids = append(ids, store.DeliveryID{EventID: c.Event.ID, Handler: c.Lease.Handler})
		}
		if err := d.s.Requeue(d.t.Context(), ids, d.now); err != nil {
			d.t.Fatalf("requeue: %v", err)
		}
	}
}

// B12 S6: completing inside a transaction adds a fixed number of statements to it.
func TestCostOfCompleteTx(t *testing.T) {
	t.Parallel()
	d, n := newCountedDesk(t, postgres.Config{})
	costs := make(map[int]cost)
	for _, keyed := range []bool{false, true} {
		for round := range 4 {
			d.publish(d.events(1, keyed, "h")...)
			got := d.claim(1, "h")
			costs[round] = n.of(func() {
				err := d.s.Transact(t.Context(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
					return d.s.CompleteTx(ctx, tx, "w", got[0].Lease, d.now)
				})
				if err != nil {
					t.Errorf("complete: %v", err)
				}
			})
		}
		delete(costs, 0)
		// Begin, and commit; a key is locked, and its next delivery is looked for.
		same(t, fmt.Sprintf("keyed %v: a completion in a transaction", keyed), costs, map[bool]cost{false: {3, 3}, true: {5, 5}}[keyed], n.sent())
	}
}

// Z7: a worker with nothing to do sends one batch for each claim, and writes nothing.
func TestCostOfIdleClaim(t *testing.T) {
	t.Parallel()
	d, n := newCountedDesk(t, postgres.Config{})
	d.publish(d.events(10, true, "h")...)
	d.complete(d.claim(10, "h")...)
	d.claim(10, "h")
	before := postgres.Transactions(d.s)
	c := n.of(func() {
		for range 10 {
			d.now = d.now.Add(time.Second)
			if got := d.claim(10, "h"); len(got) != 0 {
				t.Errorf("claimed %q", idsOf(got))
			}
		}
	})
	same(t, "ten idle claims", map[int]cost{10: c}, cost{10, 100}, n.sent())
	for _, word := range []string{"INSERT", "UPDATE", "DELETE"} {
		if strings.Contains(n.sent(), word) {
			t.Errorf("an idle claim writes:\n%s", n.sent())
		}
	}
	if after := postgres.Transactions(d.s); after-before != 10 {
		t.Errorf("ten idle claims began %d transactions", after-before)
	}
}
