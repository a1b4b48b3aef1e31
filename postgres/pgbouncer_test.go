package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/storetest"
)

// newBouncer starts a pgbouncer in transaction mode in front of the shared server.
func newBouncer(tb testing.TB, options pgserver.PgBouncerOptions) *pgserver.PgBouncer {
	tb.Helper()
	admin, err := cluster.AdminURL(tb.Context())
	if err != nil {
		tb.Fatalf("find PostgreSQL: %v", err)
	}
	b, err := pgserver.StartPgBouncer(tb.Context(), admin, options)
	if err != nil {
		tb.Fatalf("start pgbouncer: %v", err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Errorf("close pgbouncer: %v", err)
		}
	})
	return b
}

// through returns the URL of the same database through a pgbouncer, with a mode of pgx. In all but the default one
// nothing is prepared on a connection that the next transaction does not get.
func through(tb testing.TB, b *pgserver.PgBouncer, direct, mode string) string {
	tb.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		tb.Fatalf("parse url: %v", err)
	}
	return b.URL(strings.TrimPrefix(u.Path, "/")) + "&default_query_exec_mode=" + mode
}

// F38 F43: the whole suite behind PgBouncer, in the mode that is recommended there.
func TestConformancePgBouncer(t *testing.T) {
	t.Parallel()
	b := newBouncer(t, pgserver.PgBouncerOptions{})
	behind := backend()
	behind.Name = "postgres behind pgbouncer"
	// It is about how the server is reached: what a large backlog costs, and where else a process can die, is the same.
	behind.Backlog = 500
	behind.CrashPoints = storetest.CrashPoints{Setup: behind.CrashPoints.Setup}
	behind.New = func(tb testing.TB) storetest.Database {
		tb.Helper()
		return withoutWaker(databaseAt(tb, through(tb, b, newDatabaseURL(tb), "exec")))
	}
	storetest.Run(t, behind)
}

// polled is a store that signals nothing, as it is behind a pooler.
type polled struct{ *postgres.Store }

// Wake hides that of the store: a method of another form is no store.Waker.
func (polled) Wake() {}

func withoutWaker(d storetest.Database) storetest.Database {
	of := func(s store.Store) store.Store {
		if p, ok := s.(polled); ok {
			return p.Store
		}
		return s
	}
	open, begin, effects := d.Open, d.Begin, d.Effects
	d.Open = func(tb testing.TB, o storetest.Options) store.Store {
		tb.Helper()
		s, ok := open(tb, o).(*postgres.Store)
		if !ok {
			tb.Fatal("it opens another store")
		}
		return polled{s}
	}
	d.Begin = func(tb testing.TB, s store.Store) storetest.CallerTx { tb.Helper(); return begin(tb, of(s)) }
	d.Effects = func(tb testing.TB, s store.Store) []string { tb.Helper(); return effects(tb, of(s)) }
	return d
}

// F43: every kind of call in each mode of pgx that can work behind a pooler of transactions, on two connections of the
// server that change all the time.
func TestPgBouncerModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "cache_describe", "describe_exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBouncer(t, pgserver.PgBouncerOptions{PoolSize: 2})
			d := newDesk(t, newPool(t, through(t, b, newDatabaseURL(t), mode)), postgres.Config{History: true})
			// Somebody else's transactions come between, so that connections change hands.
			other := newPool(t, d.pool.Config().ConnString())
			done := make(chan struct{})
			var group sync.WaitGroup
			group.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						if _, err := other.Exec(t.Context(), "SELECT 1"); err != nil {
							t.Errorf("work of somebody else: %v", err)
							return
						}
					}
				}
			})
			work(d)
			close(done)
			group.Wait()
		})
	}
}

// work makes every kind of call once at least. What was there before has completed.
func work(d *desk) {
	d.t.Helper()
	ctx := d.t.Context()
	check := func(step string, err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatalf("%s: %v", step, err)
		}
	}
	had, err := d.s.List(ctx, store.Filter{}, store.Page{Limit: 1000})
	check("list", err)
	check("record", d.s.RecordHandlers(ctx, []store.HandlerEntry{
		{Handler: store.Handler{ID: "h", Aliases: []string{"old"}}, Types: []string{"order.*"}}, {Handler: store.Handler{ID: "g"}},
	}, d.now))
	d.publish(d.event("one", "", "h"))
	d.publish(d.event("one", "", "h", "g"))
	d.publish(d.event("keyed", `a"b\c,{}`, "h"))
	d.publish(d.event("twice", "k", "h"), d.event("twice", "k", "h", "g"))
	d.publish(append(d.events(40, true, "h"), d.events(40, false, "h")...)...)
	caller := begin(d.t, d.pool)
	_, err = d.s.Append(ctx, caller.Tx, []store.NewEvent{d.event("joined", "k", "h")}, d.now)
	check("append", errors.Join(err, caller.Commit()))

	r := d.request(100, "h")
	r.Handlers[0].Aliases = []string{"old"}
	result, err := d.s.Claim(ctx, r)
	check("claim", err)
	got := result.Deliveries
	if len(got) != 83 {
		d.t.Fatalf("claimed %d, want all but one of a key", len(got))
	}
	check("complete", d.s.Transact(ctx, store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
		if _, err := postgres.Tx(ctx).Exec(ctx, "SELECT $1::text", "the handler's own work"); err != nil {
			return err
		}
		return d.s.CompleteTx(ctx, tx, "w", got[0].Lease, d.now)
	}))
	d.settle(store.Reschedule, got[1:10]...)
	d.settle(store.Release, got[10:20]...)
	d.settle(store.Bury, got[20:30]...)
	d.complete(got[30:80]...)
	ok, err := d.s.Extend(ctx, "w", []store.Lease{got[80].Lease}, d.now, time.Minute)
	check("extend", err)
	if len(ok) != 1 || !ok[0] {
		d.t.Errorf("the lease is lost")
	}
	dead := store.DeliveryID{EventID: got[20].Event.ID, Handler: "h"}
	check("requeue", d.s.Requeue(ctx, []store.DeliveryID{dead}, d.now))
	check("bury", d.s.BuryPending(ctx, dead, "no", d.now))
	if n, err := d.s.RequeueWhere(ctx, store.Filter{Handler: "h"}, 5, d.now); err != nil || n != 5 {
		d.t.Errorf("requeued %d, %v", n, err)
	}
	page, err := d.s.List(ctx, store.Filter{}, store.Page{Limit: 1000})
	check("list", err)
	if n := len(page.Deliveries) - len(had.Deliveries); n != 86 {
		d.t.Errorf("%d deliveries are listed, want 86", n)
	}
	_, err = d.s.Handlers(ctx)
	check("list handlers", err)
	check("pause", d.s.PauseHandler(ctx, "g", true, d.now))
	check("relinquish", d.s.Relinquish(ctx, "w", d.now))
	purged, err := d.s.Purge(ctx, store.PurgeRequest{CompletedBefore: d.now.Add(time.Hour), DeadBefore: d.now.Add(time.Hour), Limit: 1000})
	check("purge", err)
	if n := purged.History - int64(len(had.Deliveries)); n != 51 || purged.Deliveries != 5 {
		d.t.Errorf("purged %+v", purged)
	}
	d.wantCounts(30, 0)
}

// F43: in the default mode of pgx, which does not work there, the error says what to do.
func TestPgBouncerDefaultMode(t *testing.T) {
	t.Parallel()
	b := newBouncer(t, pgserver.PgBouncerOptions{PoolSize: 1})
	url := through(t, b, newDatabaseURL(t), "cache_statement")
	var err error
	for range 3 { // The first one may find its own statements again.
		s := newStore(t, newPool(t, url), postgres.Config{})
		if err = s.Setup(t.Context()); err != nil {
			break
		}
	}
	typed, ok := errors.AsType[*store.Error](err)
	if !ok || !errors.Is(typed, store.ErrUnavailable) || !strings.Contains(typed.Detail, "DefaultQueryExecMode") {
		t.Errorf("setup: %v", err)
	}
}

// F09 F38: who publishes inside a transaction needs no second connection of the server, for handlers that are in the
// catalogue: behind a pooler all connections may be held by such transactions.
func TestPgBouncerHoldsOneConnection(t *testing.T) {
	t.Parallel()
	const servers = 2
	b := newBouncer(t, pgserver.PgBouncerOptions{PoolSize: servers})
	url := through(t, b, newDatabaseURL(t), "exec")
	d := newDesk(t, newPool(t, url), postgres.Config{})
	err := d.s.RecordHandlers(t.Context(), []store.HandlerEntry{
		{Handler: store.Handler{ID: "h"}}, {Handler: store.Handler{ID: "renamed", Aliases: []string{"old"}}},
	}, d.now)
	if err != nil {
		t.Fatalf("record handlers: %v", err)
	}
	// Another process publishes for them.
	other := newStore(t, newPool(t, url), postgres.Config{})
	if err := other.Setup(t.Context()); err != nil {
		t.Fatalf("set up: %v", err)
	}
	entries, err := other.Handlers(t.Context())
	if err != nil || len(entries) != 2 {
		t.Fatalf("the catalogue is %v, %v", entries, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var group, open sync.WaitGroup
	open.Add(servers)
	for i := range servers {
		group.Go(func() {
			err := other.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
				open.Done()
				open.Wait() // All connections are held now.
				e := d.event(fmt.Sprintf("e-%d", i), "", "h")
				e.Handlers = append(e.Handlers, store.Handler{ID: "renamed", Aliases: []string{"old"}})
				_, err := other.Append(ctx, tx, []store.NewEvent{e}, d.now)
				return err
			})
			if err != nil {
				t.Errorf("publish while all connections are held: %v", err)
			}
		})
	}
	group.Wait()
}

// S1 F17 F38: many set up at once through fewer connections of the server than there are of them.
func TestPgBouncerSetup(t *testing.T) {
	t.Parallel()
	b := newBouncer(t, pgserver.PgBouncerOptions{PoolSize: 3})
	setupTogether(t, through(t, b, newDatabaseURL(t), "exec"), postgres.Config{})
}

// F38: who is killed in a setup behind PgBouncer keeps no lock, and the next one is through at once.
func TestPgBouncerSetupKilled(t *testing.T) {
	t.Parallel()
	b := newBouncer(t, pgserver.PgBouncerOptions{PoolSize: 3})
	direct := newDatabaseURL(t)
	url := through(t, b, direct, "exec")
	for range 3 {
		killInSetup(t, url)
	}
	pool := newPool(t, url)
	s := newStore(t, pool, postgres.Config{SetupLockTimeout: 5 * time.Second})
	if err := s.Setup(t.Context()); err != nil {
		t.Errorf("setup after killed ones: %v", err)
	}
	wantNoLocks(t, newPool(t, direct))
}

// wantNoLocks checks that no session holds an advisory lock.
func wantNoLocks(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	var n int
	err := pool.QueryRow(tb.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
	if err != nil || n != 0 {
		tb.Errorf("%d advisory locks are held, %v", n, err)
	}
}
