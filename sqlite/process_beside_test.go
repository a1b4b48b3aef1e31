package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/sqlite"
)

// F17: twenty processes start at once on a file that does not exist. One has
// begun to set it up, and is killed while the others wait for it. They start,
// and so does that one, when it is started again.
func TestProcessesStartAtOnce(t *testing.T) {
	t.Parallel()
	const processes = 20
	for round, point := range []string{"migrating", "commit set up store", "committed set up store"} {
		path := filepath.Join(t.TempDir(), "shop.db")
		start := func(name, point string) *fleettest.Process {
			r := fleettest.Launch(t, fleettest.Program{
				Name: name, Role: "start", Database: path, Point: point, Nth: 1, Linger: true, Lease: time.Minute, Poll: time.Second,
			})
			r.Hear(t, fleettest.SaidUp, nil)
			return r
		}
		doomed := start("doomed", point)
		var others []*fleettest.Process
		for i := range processes - 1 {
			others = append(others, start("process-"+strconv.Itoa(i), ""))
		}
		doomed.Give(t)
		doomed.Hear(t, fleettest.SaidCrash, nil)
		for _, r := range others {
			r.Give(t)
		}
		doomed.Give(t)
		<-doomed.Ended()
		if !doomed.Killed() {
			t.Errorf("round %d: the process was not killed at %q: %s", round, point, doomed.Problem())
		}
		again := start("doomed again", "")
		again.Give(t)
		for _, r := range append(others, again) {
			<-r.Ended()
			if problem := r.Problem(); problem != "" {
				t.Errorf("round %d: %s: %s", round, r.Name, problem)
			}
		}
		checkSetUp(t, path)
	}
}

func checkSetUp(t *testing.T, path string) {
	t.Helper()
	s := open(t, path, sqlite.Config{})
	for text, want := range map[string]int{
		`SELECT count(*) FROM relaybus_meta WHERE key = 'schema' AND value = 1`:     1,
		`SELECT count(*) FROM relaybus_handlers WHERE types <> '[]'`:                6,
		`SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'`: 0,
	} {
		var n int
		if err := s.DB().QueryRowContext(t.Context(), text).Scan(&n); err != nil || n != want {
			t.Errorf("%s: %d, %v, want %d", text, n, err, want)
		}
	}
}

// F45: eight processes read and then write in transactions of the bus, with a
// reader that stays and checkpoints in the middle. No lock is ever shown to
// them, and no count is lost.
func TestProcessesReadAndWrite(t *testing.T) {
	t.Parallel()
	const processes, transactions = 8, 40
	path := filepath.Join(t.TempDir(), "shop.db")
	prepare(t, path)
	s := open(t, path, sqlite.Config{})
	if err := s.Setup(t.Context()); err != nil {
		t.Fatalf("setup: %v", err)
	}
	var all []*fleettest.Process
	for i := range processes {
		all = append(all, fleettest.Launch(t, fleettest.Program{
			Name: "count-" + strconv.Itoa(i), Role: "count", Database: path, Events: transactions, Lease: time.Minute, Poll: time.Second,
		}))
	}
	for _, r := range all {
		r.Hear(t, fleettest.SaidUp, nil)
	}
	reader, err := s.Reader().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatalf("begin to read: %v", err)
	}
	if n := counted(t, reader); n != 0 {
		t.Fatalf("the counter is at %d before the start", n)
	}
	for _, r := range all {
		r.Give(t)
	}
	for range transactions / 2 {
		all[0].Hear(t, fleettest.SaidTurn, nil)
	}
	checkpoint(t, path)
	if n := counted(t, reader); n != 0 {
		t.Errorf("the reader sees %d of what was written after it began", n)
	}
	if err := reader.Rollback(); err != nil {
		t.Errorf("end the reader: %v", err)
	}
	checkpoint(t, path)
	for _, r := range all {
		<-r.Ended()
		if problem := r.Problem(); problem != "" {
			t.Errorf("%s: %s", r.Name, problem)
		}
	}
	if n := counted(t, s.Reader()); n != processes*transactions {
		t.Errorf("the counter is at %d, want %d", n, processes*transactions)
	}
}

func counted(t *testing.T, on interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (n int) {
	t.Helper()
	if err := on.QueryRowContext(t.Context(), `SELECT value FROM counters WHERE name = 'n'`).Scan(&n); err != nil {
		t.Fatalf("read counter: %v", err)
	}
	return n
}

// checkpoint takes up the log as a tool beside the bus would, and waits only a
// moment for readers.
func checkpoint(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(200)")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	for _, mode := range []string{"PASSIVE", "TRUNCATE"} {
		var busy, log, moved int
		if err := db.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &log, &moved); err != nil {
			t.Logf("checkpoint: %v", err) // A busy one is no fault of the bus.
		}
	}
	if err := db.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// F48: six workers that start at once and two publishers, without any fault:
// each delivery is executed once.
func TestProcessesShareTheWork(t *testing.T) {
	t.Parallel()
	shareTheWork(t, nil)
}

// shareTheWork lets processes work, and disturbs them as disturb does until its
// context ends.
func shareTheWork(t *testing.T, disturb func(ctx context.Context, workers []*fleettest.Process)) {
	t.Helper()
	const workers, publishers, orders = 6, 2, 25
	path := filepath.Join(t.TempDir(), "shop.db")
	prepare(t, path)
	f := fleettest.NewFleet(t, path, fleettest.Points{}, 1)
	f.Lease = 3 * time.Minute // so that none runs out, however slow the machine
	var all []*fleettest.Process
	launchAll := func(role string, n int) []*fleettest.Process {
		var list []*fleettest.Process
		for i := range n {
			p := f.Program(role, fleettest.Workers+i, fmt.Sprintf("%s-%d", role, i))
			p.Seed = uint64(i)
			if role == "publish" {
				p.Events = orders
			}
			list = append(list, fleettest.Launch(t, p))
		}
		all = append(all, list...)
		return list
	}
	atWork := launchAll("work", workers)
	publishing := launchAll("publish", publishers)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if disturb != nil {
			disturb(ctx, atWork)
		}
	}()
	for _, r := range publishing {
		<-r.Ended()
	}
	s := open(t, path, sqlite.Config{})
	fleettest.Await(t, s, nil, atWork...)
	cancel()
	<-done
	for _, r := range atWork {
		r.MustEnd(t)
	}
	for _, r := range all {
		if problem := r.Problem(); problem != "" {
			t.Errorf("%s: %s", r.Name, problem)
		}
	}
	r := fleettest.NewReport(t, f, contents(t, s))
	r.Check()
	if r.Lost() > 0 {
		t.Errorf("%d leases were lost", r.Lost())
	}
	placed := 0
	for d, n := range r.Executions() {
		want := 1
		if d[1] == fleettest.HandlerFlaky {
			want = 2
			placed++
		}
		if n != want {
			t.Errorf("F48: %d executions of %s for %s, want %d", n, d[0], d[1], want)
		}
	}
	if placed != publishers*orders {
		t.Errorf("%d orders were executed, want %d", placed, publishers*orders)
	}
}

// B14: what one process publishes is handled by another one long before that
// one polls.
func TestProcessWakesAnother(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	prepare(t, path)
	s := open(t, path, sqlite.Config{})
	bus := steeringBus(t, s)
	worker := fleettest.Launch(t, fleettest.Program{Name: "worker", Role: "work", Database: path, Steered: true, Lease: time.Minute, Poll: time.Hour})
	for i := range 20 {
		id := "o-" + strconv.Itoa(i)
		if i%2 == 0 {
			steer(t, bus, fleettest.OrderPlaced.New(fleettest.OrderOf{ID: id}, relaybus.ID(id)))
		} else {
			// Not even this process knows of the commit.
			tx, err := s.DB().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatalf("begin: %v", err)
			}
			err = bus.PublishTx(t.Context(), sqlite.Join(tx), fleettest.OrderPlaced.New(fleettest.OrderOf{ID: id}, relaybus.ID(id)))
			if err != nil {
				t.Fatalf("publish: %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatalf("commit: %v", err)
			}
		}
		worker.Hear(t, fleettest.SaidSucceeded, func(e fleettest.Entry) bool { return e.Event == id })
	}
	worker.MustEnd(t)
}

// steeringBus is a started bus that publishes for the steered handlers.
func steeringBus(t *testing.T, s *sqlite.Store) *relaybus.Bus {
	t.Helper()
	bus, err := relaybus.New(s, relaybus.Config{PublishOnly: true})
	if err != nil {
		t.Fatalf("new bus: %v", err)
	}
	if err := bus.Subscribe(fleettest.Steered(time.Minute)...); err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	if err := bus.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := bus.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return bus
}

func steer(t *testing.T, bus *relaybus.Bus, m relaybus.Message) {
	t.Helper()
	if err := bus.Transaction(t.Context(), func(ctx context.Context) error { return bus.Publish(ctx, m) }); err != nil {
		t.Fatalf("publish: %v", err)
	}
}
