package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// second is another process on the same database.
func (d *desk) second() *desk {
	d.t.Helper()
	other := &desk{t: d.t, pool: d.pool, s: newStore(d.t, d.pool, postgres.Config{}), now: d.now, ids: 1000}
	if err := other.s.Setup(d.t.Context()); err != nil {
		d.t.Fatalf("set up: %v", err)
	}
	return other
}

// claimAs claims for another owner.
func (d *desk) claimAs(owner string, limit int, handlers ...string) []store.Claimed {
	d.t.Helper()
	r := d.request(limit, handlers...)
	r.Owner = owner
	result, err := d.s.Claim(d.t.Context(), r)
	if err != nil {
		d.t.Fatalf("claim: %v", err)
	}
	return result.Deliveries
}

// block holds what the statement locks until release.
func (d *desk) block(text string, args ...any) (release func()) {
	d.t.Helper()
	conn, err := d.pool.Acquire(d.t.Context())
	if err != nil {
		d.t.Fatalf("acquire: %v", err)
	}
	for _, one := range []struct {
		text string
		args []any
	}{{"BEGIN", nil}, {text, args}} {
		if _, err := conn.Exec(d.t.Context(), one.text, one.args...); err != nil {
			d.t.Fatalf("block: %v", err)
		}
	}
	return sync.OnceFunc(func() {
		defer conn.Release()
		if _, err := conn.Exec(context.WithoutCancel(d.t.Context()), "ROLLBACK"); err != nil {
			d.t.Errorf("release: %v", err)
		}
	})
}

// awaitWaiters returns when n sessions wait for locks.
func (d *desk) awaitWaiters(n int) {
	d.t.Helper()
	await(d.t, "somebody waits for a lock", func() bool {
		var waiting int
		err := d.pool.QueryRow(d.t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			d.t.Fatalf("look for those who wait: %v", err)
		}
		return waiting >= n
	})
}

// I6 Z2: what a claim has taken is handed out, also if it fails afterwards to take over from somebody.
func TestClaimThatFailsLater(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	other := d.second()
	other.publish(other.event("dead", "", "x"))
	r := other.request(1, "x")
	r.Owner, r.Lease = "dead", time.Second
	if c, err := other.s.Claim(t.Context(), r); err != nil || len(c.Deliveries) != 1 {
		t.Fatalf("claimed %v: %v", c, err)
	}
	d.publish(d.event("first", "", "h"))
	d.complete(d.claim(1, "h")...)
	d.now = d.now.Add(900 * time.Millisecond)
	d.claim(1, "h") // It looks, and nobody's lease has ended.
	d.now = d.now.Add(500 * time.Millisecond)
	d.publish(d.event("mine", "", "h"))
	other.publish(other.event("theirs", "", "y")) // So that the claim looks again when it has taken what is known.
	release := d.block(`SELECT FROM relaybus_deliveries d JOIN relaybus_events e ON e.seq = d.event WHERE e.id = 'dead' FOR UPDATE OF d`)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	var got store.ClaimResult
	var err error
	group.Go(func() { got, err = d.s.Claim(ctx, d.request(10, "h")) })
	d.awaitWaiters(1)
	cancel()
	group.Wait()
	if err != nil || len(got.Deliveries) != 1 || got.Deliveries[0].Event.ID != "mine" {
		t.Errorf("claimed %q: %v", idsOf(got.Deliveries), err)
	}
}

// I4 S7: a settlement that comes late leaves the claim of the owner's successor alone.
func TestSettleBesideSuccessor(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	other := d.second()
	d.publish(d.event("one", "key", "h"))
	first := d.claim(1, "h")
	other.now = d.now.Add(time.Hour)
	other.claimAs("reaper", 1, "nothing")
	var ref int32
	if err := d.pool.QueryRow(t.Context(), `SELECT ref FROM relaybus_handlers WHERE id = 'h'`).Scan(&ref); err != nil {
		t.Fatalf("find handler: %v", err)
	}
	release := d.block(postgres.StatementTexts(d.s)["lockMoves"], postgres.MoveClass(d.s), []int32{ref})
	defer release()
	var group sync.WaitGroup
	group.Go(func() {
		list := []store.Settlement{{Lease: first[0].Lease, Action: store.Complete}}
		if ok, err := d.s.Settle(t.Context(), "w", list, d.now); err != nil || ok[0] {
			t.Errorf("settled %v: %v", ok, err)
		}
	})
	d.awaitWaiters(1)
	d.now = d.now.Add(2 * time.Hour)
	other.now = d.now
	d.publish(d.event("two", "", "h2"))
	if second := d.claim(1, "h2"); len(second) != 1 {
		t.Fatalf("claimed %q", idsOf(second))
	}
	release()
	group.Wait()
	other.now = d.now.Add(2 * time.Second)
	if twice := other.claimAs("v", 1, "h2"); len(twice) != 0 {
		t.Errorf("%q run at two owners within the lease", idsOf(twice))
	}
}

// S13: what two purges have counted of one event adds up.
func TestPurgesOfOneEvent(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	d.publish(d.event("E", "", "h1", "h2"), d.event("F", "", "h1"))
	claimed := make(map[string]store.Claimed)
	for _, c := range d.claim(10, "h1", "h2") {
		claimed[c.Event.ID+c.Lease.Handler] = c
	}
	for _, name := range []string{"Eh1", "Fh1", "Eh2"} { // A record for each.
		d.complete(claimed[name])
		d.now = d.now.Add(time.Millisecond)
	}
	release := d.block(`SELECT FROM relaybus_events WHERE id = 'E' FOR UPDATE`)
	defer release()
	purge := func(limit int) store.PurgeResult {
		result, err := d.s.Purge(t.Context(), store.PurgeRequest{CompletedBefore: d.now.Add(time.Hour), Limit: limit})
		if err != nil {
			t.Errorf("purge: %v", err)
		}
		return result
	}
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() { purge(1) })
		d.awaitWaiters(i + 1)
	}
	release()
	group.Wait()
	for more := true; more; {
		more = purge(100).More
	}
	var left int
	if err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM relaybus_events`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d events are left: %v", left, err)
	}
}

// B9: sets of ids that overlap and are declared at the same moment become one.
func TestAliasSetsAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	other := d.second()
	entry := func(id string, aliases ...string) []store.HandlerEntry {
		return []store.HandlerEntry{{Handler: store.Handler{ID: id, Aliases: aliases}}}
	}
	for _, id := range []string{"a", "b", "c"} {
		if err := d.s.RecordHandlers(t.Context(), entry(id), d.now); err != nil {
			t.Fatalf("record: %v", err)
		}
	}
	release := d.block(`SELECT FROM relaybus_handlers WHERE id = 'b' FOR UPDATE`)
	defer release()
	var group sync.WaitGroup
	group.Go(func() {
		if err := d.s.RecordHandlers(t.Context(), entry("b", "a"), d.now); err != nil {
			t.Errorf("record: %v", err)
		}
	})
	d.awaitWaiters(1)
	group.Go(func() {
		if err := other.s.RecordHandlers(t.Context(), entry("c", "b"), d.now); err != nil {
			t.Errorf("record: %v", err)
		}
	})
	d.awaitWaiters(2)
	release()
	group.Wait()
	var groups int
	err := d.pool.QueryRow(t.Context(), `SELECT count(DISTINCT coalesce(grp, -ref)) FROM relaybus_handlers`).Scan(&groups)
	if err != nil || groups != 1 {
		t.Errorf("they are %d groups: %v", groups, err)
	}
}

// B9: a delivery under an id that only another process has declared comes with that id.
func TestClaimOfForeignAlias(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	other := d.second()
	d.publish(d.event("a", "", "old"))
	d.complete(d.claim(10, "old")...)
	e := other.event("b", "")
	e.Handlers = []store.Handler{{ID: "new", Aliases: []string{"old"}}}
	other.publish(e)
	d.now = d.now.Add(2 * time.Second)
	if got := d.claim(10, "old"); len(got) != 1 || got[0].Lease.Handler != "new" {
		t.Errorf("claimed %+v", got)
	}
}

// B10 P4: a worker that stands still in the middle of a claim holds up nobody who has work of its own.
func TestClaimBesideStalledClaim(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	other := d.second()
	other.publish(other.event("k-1", "key", "h"))
	for _, c := range other.claimAs("stalled", 200, "h") {
		if _, err := other.s.Settle(t.Context(), "stalled", []store.Settlement{{Lease: c.Lease, Action: store.Complete}}, d.now); err != nil {
			t.Fatalf("settle: %v", err)
		}
	}
	d.publish(d.events(300, false, "mine")...)
	d.complete(d.claim(100, "mine")...)
	other.publish(other.event("k-2", "key", "h")) // In a lane of the one that stands still.
	d.now = d.now.Add(2 * time.Second)
	release := d.block(`SELECT FROM relaybus_owners WHERE name = 'stalled' FOR SHARE`)
	defer release()
	if got := d.claim(10, "mine", "h"); len(got) != 10 {
		t.Errorf("claimed %q", idsOf(got))
	}
	release()
	d.now = d.now.Add(2 * time.Second)
	for range 300 {
		for _, c := range d.claim(50, "mine", "h") {
			if c.Event.ID == "k-2" {
				return
			}
			d.complete(c)
		}
	}
	t.Error("what waits in another's lane is never taken")
}
