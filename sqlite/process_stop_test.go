//go:build unix

package sqlite_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/sqlite"
)

// stop stops a process that does not hold the lock of the file, as everybody
// would have to wait for it then.
func (c *comeback) stop(t *testing.T, r *fleettest.Process) {
	t.Helper()
	tx, err := c.store.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	r.Signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(r.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%s did not stop: %v", r.Name, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatalf("roll back: %v", err)
	}
}

// F16 F02 I5: a process is stopped while its handler is at work, until another
// one has taken over from it and completed the delivery. What the first one then
// does with it changes nothing.
func TestStoppedProcessComesBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		handler, result string
	}{
		{fleettest.SteeredPlain, fleettest.ResultSuccess},
		{fleettest.SteeredPlain, fleettest.ResultFailure},
		{fleettest.SteeredPlain, fleettest.ResultPermanent},
		{fleettest.SteeredTx, fleettest.ResultSuccess},
		{fleettest.SteeredTx, fleettest.ResultFailure},
		{fleettest.SteeredTx, fleettest.ResultPermanent},
	} {
		for _, heir := range []string{"w", "x"} {
			t.Run(strings.Join([]string{test.handler, test.result, "heir", heir}, " "), func(t *testing.T) {
				t.Parallel()
				c := newComeback(t, test.handler, test.result)
				c.stop(t, c.first)
				other := fleettest.Launch(t, c.program("other", heir, false))
				other.Hear(t, fleettest.SaidSucceeded, nil)
				c.first.Give(t)
				c.first.Signal(t, syscall.SIGCONT)
				c.first.Hear(t, fleettest.SaidLost, nil)
				c.first.MustEnd(t)
				other.MustEnd(t)
				for e := range c.first.Said() {
					if slices.Contains([]string{fleettest.SaidSucceeded, fleettest.SaidRetried, fleettest.SaidBuried, fleettest.SaidReleased}, e.What) {
						t.Errorf("the process that had lost its lease said %q", e.What)
					}
				}
				c.check(t)
			})
		}
	}
}

// F16: a process is stopped with the transaction of its handler open, for longer
// than its lease. Nobody can write meanwhile. Its effect happens once, whoever
// completes the delivery in the end.
func TestProcessStoppedInItsTransaction(t *testing.T) {
	t.Parallel()
	c := newComeback(t, fleettest.SteeredTx, fleettest.ResultEffectFirst)
	c.first.Hear(t, fleettest.SaidTurn, nil)
	c.first.Signal(t, syscall.SIGSTOP)
	other := fleettest.Launch(t, c.program("other", "w", false))
	fleettest.Wait(t.Context(), 2*c.lease)
	c.first.Give(t)
	c.first.Signal(t, syscall.SIGCONT)
	// The first one may get it again, and waits then.
	for range 8 {
		c.first.Give(t)
	}
	fleettest.Await(t, c.store, nil, c.first, other)
	c.first.MustEnd(t)
	other.MustEnd(t)
	c.check(t)
}

// comeback is a process that has begun to handle an order.
type comeback struct {
	path  string
	lease time.Duration
	store *sqlite.Store
	first *fleettest.Process
}

func newComeback(t *testing.T, handler, result string) *comeback {
	t.Helper()
	c := &comeback{path: filepath.Join(t.TempDir(), "shop.db"), lease: 500 * time.Millisecond}
	prepare(t, c.path)
	c.store = open(t, c.path, sqlite.Config{})
	bus := steeringBus(t, c.store)
	c.first = fleettest.Launch(t, c.program("first", "w", true))
	m := fleettest.OrderPlaced.New(fleettest.OrderOf{ID: "o", Result: result}, relaybus.ID("o"), relaybus.Key("k"))
	if handler == fleettest.SteeredTx {
		m = fleettest.OrderBooked.New(fleettest.OrderOf{ID: "o", Result: result}, relaybus.ID("o"), relaybus.Key("k"))
	}
	steer(t, bus, m)
	c.first.Hear(t, fleettest.SaidStart, func(e fleettest.Entry) bool { return e.Handler == handler })
	return c
}

func (c *comeback) program(name, owner string, hold bool) fleettest.Program {
	return fleettest.Program{
		Name: name, Role: "work", Database: c.path, Owner: owner, Steered: true, Hold: hold, Lease: c.lease, Poll: 50 * time.Millisecond,
	}
}

// check finds the order completed once, and nothing else.
func (c *comeback) check(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for text, want := range map[string]int{
		`SELECT count(*) FROM relaybus_deliveries`:                                  0,
		`SELECT count(*) FROM relaybus_claims`:                                      0,
		`SELECT count(*) FROM relaybus_owners`:                                      0,
		`SELECT count(*) FROM relaybus_lanes WHERE owner <> 0`:                      0,
		`SELECT count(*) FROM relaybus_completions c, json_each(c.list)`:            1,
		`SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'`: 0,
		`SELECT (SELECT count(*) FROM effects) - (SELECT count(*) FROM relaybus_events
			WHERE type = 'order.booked.v1')`: 0,
	} {
		var n int
		if err := c.store.DB().QueryRowContext(ctx, text).Scan(&n); err != nil || n != want {
			t.Errorf("%s: %d, %v, want %d", text, n, err, want)
		}
	}
}

// F48: as without any fault, when processes are stopped and resumed within their
// leases.
func TestProcessesShareTheWorkWhileSomeAreStopped(t *testing.T) {
	t.Parallel()
	shareTheWork(t, func(ctx context.Context, workers []*fleettest.Process) {
		for i := 0; ctx.Err() == nil; i++ {
			r := workers[i%len(workers)]
			r.Signal(t, syscall.SIGSTOP)
			fleettest.Wait(ctx, 200*time.Millisecond)
			r.Signal(t, syscall.SIGCONT)
			fleettest.Wait(ctx, 100*time.Millisecond)
		}
	})
}
