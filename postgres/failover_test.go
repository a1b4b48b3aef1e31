package postgres_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/postgres"
)

// handlesAll handles placed orders.
func handlesAll(d *diary) relaybus.Handler {
	return plainHandler(d, func(*relaybus.Event[fleettest.OrderOf]) error { return nil })
}

// F26 F21: connections on which transactions are read-only by default can be written on, as the bus says what it needs.
func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	url := newShopURL(t)
	var mu sync.Mutex
	left := 3
	pool := newPool(t, url, func(c *pgxpool.Config) {
		c.AfterConnect = readOnlyFirst(&mu, &left)
	})
	l, d := &line{t: t, direct: newPool(t, url), store: newStore(t, pool, postgres.Config{})}, newDiary()
	bus := l.start(d, handlesAll(d))
	if err := place(t.Context(), bus, "o", nil); err != nil {
		t.Fatalf("publish: %v", err)
	}
	d.await(t, 1)
	l.settled(1)
	mu.Lock()
	defer mu.Unlock()
	if left != 0 {
		t.Errorf("%d connections were not made", left)
	}
}

// F26: a server becomes a standby, which takes no writes, and another one takes its place. Connections to the first one
// stay open. Writes fail with a clear error and resume by themselves when the way leads to the other one.
func TestDemotedServer(t *testing.T) {
	t.Parallel()
	old, promoted := startServer(t), startServer(t)
	url := old.URL("postgres")
	administer(t, t.Context(), url, makeTables)
	l, d := &line{t: t, proxy: newProxy(t, url)}, newDiary()
	through, err := l.proxy.URL(url)
	if err != nil {
		t.Fatal(err)
	}
	pool := newPool(t, through, func(c *pgxpool.Config) { c.MaxConns = 4 })
	l.store = newStore(t, pool, postgres.Config{})
	bus := l.start(d, handlesAll(d))
	if err := place(t.Context(), bus, "before", nil); err != nil {
		t.Fatalf("publish: %v", err)
	}
	d.await(t, 1)

	demote(t, old, promoted)
	fill(t, pool, bus)
	err = place(t.Context(), bus, "between", nil)
	if !errors.Is(err, relaybus.ErrUnavailable) || relaybus.OutcomeOf(err) != relaybus.NotCommitted {
		t.Errorf("a publish to a standby: %v, want that it is unavailable, and nothing committed", err)
	}
	fill(t, pool, bus)
	// A worker with nothing to do finds out, too: the bus is not ready as long as it can't write.
	await(t, "the bus is not ready", func() bool { return bus.Ready() != nil })

	address, err := pgserver.Address(promoted.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	l.proxy.SetTarget(address)
	l.direct = newPool(t, promoted.URL("postgres"))
	// It may take one attempt for each connection that leads to the old server.
	resumed := time.Now()
	for err = errors.New("not tried"); err != nil; {
		if err = place(t.Context(), bus, "after", nil); err != nil && time.Since(resumed) > 20*time.Second {
			t.Fatalf("F26: writes have not resumed after %v: %v", time.Since(resumed), err)
		}
	}
	t.Logf("writes have resumed after %v", time.Since(resumed))
	await(t, "the bus is ready", func() bool { return bus.Ready() == nil })
	d.await(t, 2)
	l.settled(2)
	if l.exists("between") {
		t.Error("I2: an event that could not be published is there")
	}
}

// demote makes the old server a standby, and the other one a primary with its data.
func demote(t *testing.T, old, promoted *pgserver.Server) {
	t.Helper()
	for _, s := range []*pgserver.Server{old, promoted} {
		if err := s.Stop(t.Context(), pgserver.Fast); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	from, to := dataOf(old), dataOf(promoted)
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy the data: %v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(from, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*pgserver.Server{old, promoted} {
		if err := s.Restart(t.Context()); err != nil {
			t.Fatalf("start: %v", err)
		}
	}
}

func dataOf(s *pgserver.Server) string { return filepath.Join(filepath.Dir(s.LogFile()), "data") }

func startServer(t *testing.T) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(t.Context(), pgserver.Options{})
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return server
}

// fill makes as many connections as the pools of the store may have. They can be read on.
func fill(t *testing.T, pool *pgxpool.Pool, bus *relaybus.Bus) {
	t.Helper()
	var group sync.WaitGroup
	var all sync.WaitGroup
	all.Add(4)
	for range 4 {
		group.Go(func() {
			conn, err := pool.Acquire(t.Context())
			all.Done()
			if err != nil {
				t.Errorf("connect: %v", err)
				return
			}
			all.Wait()
			conn.Release()
		})
		group.Go(func() {
			for range 4 {
				if _, err := bus.ListDeliveries(t.Context(), relaybus.Filter{}, relaybus.Page{}); err != nil {
					t.Errorf("F26: read on a standby: %v", err)
				}
			}
		})
	}
	group.Wait()
}

// F54: when the connection that listens breaks, another one takes its place, and what was published meanwhile is found:
// nothing waits for the poll.
func TestListenerIsTerminated(t *testing.T) {
	t.Parallel()
	const listeners = `FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen %'`
	url := newShopURL(t)
	l, d := &line{t: t, direct: newPool(t, url)}, newDiary()
	l.store = newStore(t, newPool(t, url), postgres.Config{})
	l.poll = time.Hour
	l.start(d, handlesAll(d))
	for i := range 5 {
		await(t, "somebody listens", func() bool { return l.count(`SELECT count(*) `+listeners) > 0 })
		if n := l.count(`SELECT count(pg_terminate_backend(pid)) ` + listeners); n != 1 {
			t.Fatalf("%d connections listen, want 1", n)
		}
		l.publishDirect(placed(string(rune('a' + i))))
		d.await(t, i+1)
	}
	l.settled(5)
}

// F25 F54: the server is restarted, and crashes, under a bus that runs: it goes on by itself.
func TestServerRestartsUnderABus(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	url := server.URL("postgres")
	administer(t, t.Context(), url, makeTables)
	l, d := &line{t: t}, newDiary()
	l.store = newStore(t, newPool(t, url), postgres.Config{})
	bus := l.start(d, handlesAll(d))
	ids := []string{"before", "after the restart", "after the crash"}
	for i, stop := range []func(ctx context.Context) error{
		func(context.Context) error { return nil },
		func(ctx context.Context) error { return server.Stop(ctx, pgserver.Fast) },
		server.Kill,
	} {
		if err := stop(t.Context()); err != nil {
			t.Fatalf("stop the server: %v", err)
		}
		if i > 0 {
			err := place(t.Context(), bus, "while it is down", nil)
			if !errors.Is(err, relaybus.ErrUnavailable) || relaybus.OutcomeOf(err) != relaybus.NotCommitted {
				t.Errorf("a publish without a server: %v, want that it is unavailable, and nothing committed", err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatalf("start the server: %v", err)
			}
		}
		// Connections of before the restart are found to be broken without an error for the user.
		if err := place(t.Context(), bus, ids[i], nil); err != nil {
			t.Errorf("publish %s: %v", ids[i], err)
		}
		d.await(t, i+1)
	}
	l.direct = newPool(t, url)
	l.settled(len(ids))
}

// F16 I5: the network of a worker hangs for longer than its lease. Its handler is told before the lease ends, another
// worker takes over, and what the first one says afterwards changes nothing.
func TestWorkerWithoutNetwork(t *testing.T) {
	t.Parallel()
	l, d := newLine(t), newDiary()
	l.lease = time.Second
	cancelled := make(chan struct{})
	begun := make(chan struct{})
	l.start(d, fleettest.OrderPlaced.Handle("plain", func(ctx context.Context, e *relaybus.Event[fleettest.OrderOf]) error {
		d.executed(e.Attempt)
		if e.ID == "first" {
			return nil
		}
		close(begun)
		<-ctx.Done()
		close(cancelled)
		return nil // What it has done is done.
	}))
	l.warm(d, placed("first"))
	l.publishDirect(placed("o"))
	<-begun
	l.proxy.Freeze()
	other := newDiary()
	o := &line{t: t, direct: l.direct, lease: time.Minute}
	o.store = newStore(t, l.direct, postgres.Config{})
	o.start(other, handlesAll(other))
	<-cancelled
	other.await(t, 1)
	l.proxy.Thaw()
	if got := d.await(t, 1); got[0] != fleettest.SaidLost {
		t.Errorf("the worker that had lost its lease said %v", got)
	}
	l.settled(2)
	if a, b := d.executions(), other.executions(); len(a) != 1 || len(b) != 1 || b[0] != 2 {
		t.Errorf("executions %v and %v, want one of each, the second charged for the first", a, b)
	}
}
