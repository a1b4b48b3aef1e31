//go:build unix

package postgres_test

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// F16 F02 I5: a process is stopped while its handler is at work, until another one has taken over from it and completed
// the delivery. What the first one then does with it changes nothing: it completes it, fails, which reschedules it, or
// gives it up for dead.
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
		{fleettest.SteeredTx, fleettest.ResultEffectFirst},
	} {
		for _, heir := range []string{"w", "x"} {
			t.Run(strings.Join([]string{test.handler, test.result, "heir", heir}, " "), func(t *testing.T) {
				t.Parallel()
				c := newComeback(t, test.handler, test.result)
				if test.result == fleettest.ResultEffectFirst {
					c.first.Hear(t, fleettest.SaidTurn, nil) // Its transaction is open.
				}
				c.stop(t)
				other := fleettest.Launch(t, c.program("other", heir, false))
				other.Hear(t, fleettest.SaidSucceeded, nil)
				c.first.Give(t)
				c.first.Signal(t, syscall.SIGCONT)
				c.first.Hear(t, fleettest.SaidLost, nil)
				c.first.MustEnd(t)
				other.MustEnd(t)
				for e := range c.first.Said() {
					if slices.Contains([]string{
						fleettest.SaidSucceeded, fleettest.SaidRetried, fleettest.SaidBuried, fleettest.SaidReleased,
					}, e.What) {
						t.Errorf("the process that had lost its lease said %q", e.What)
					}
				}
				c.check(t, 1)
			})
		}
	}
}

// F16 F56 I6 I8: a process is stopped between its completion in the transaction of a handler and the commit, and does
// not come back. The work of others goes on, and its delivery is completed by somebody else, with one effect.
func TestProcessStoppedBeforeItsCommit(t *testing.T) {
	t.Parallel()
	for _, returns := range []bool{false, true} {
		name := "for good"
		if returns {
			name = "and comes back"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newComeback(t, fleettest.SteeredTx, fleettest.ResultCompleted)
			c.first.Hear(t, fleettest.SaidTurn, nil)
			c.stop(t)
			other := fleettest.Launch(t, c.program("other", "x", false))
			fleettest.Wait(t.Context(), 2*c.lease)
			c.place(t, fleettest.OrderPlaced.New(fleettest.OrderOf{ID: "p"}, relaybus.ID("p"), relaybus.Key("k")))
			c.place(t, fleettest.OrderBooked.New(fleettest.OrderOf{ID: "q"}, relaybus.ID("q")))
			if returns {
				hearWithin(t, other, 30*time.Second, "p", "q")
				c.first.Give(t)
				c.first.Signal(t, syscall.SIGCONT)
				// The first one may get it again, and waits then.
				for range 8 {
					c.first.Give(t)
				}
				fleettest.Await(t, c.store, nil, c.first, other)
				c.first.MustEnd(t)
			} else {
				hearWithin(t, other, time.Minute, "p", "q", "o")
				c.first.Kill()
				<-c.first.Ended()
			}
			other.MustEnd(t)
			c.check(t, 3)
		})
	}
}

// F25 I6: a process is stopped in the middle of a claim, and does not come back.
func TestProcessStoppedInItsClaim(t *testing.T) {
	t.Parallel()
	c := comebackWith(t)
	p := c.program("first", "w", false)
	p.Point, p.Nth, p.Linger = "recording a claim", 1, true
	c.first = fleettest.Launch(t, p)
	c.place(t, fleettest.OrderPlaced.New(fleettest.OrderOf{ID: "o"}, relaybus.ID("o"), relaybus.Key("k")))
	c.first.Hear(t, fleettest.SaidCrash, nil)
	c.stop(t)
	other := fleettest.Launch(t, c.program("other", "x", false))
	hearWithin(t, other, time.Minute, "o")
	c.first.Kill()
	<-c.first.Ended()
	// The owner of the first one goes when its lease has ended.
	fleettest.Await(t, c.store, func() int { return max(count(t, c.pool, `SELECT count(*) FROM relaybus_owners`)-1, 0) }, other)
	other.MustEnd(t)
	c.check(t, 1)
}

// comeback is a process that has begun to handle an order.
type comeback struct {
	url   string
	lease time.Duration
	pool  *pgxpool.Pool
	store *postgres.Store
	bus   *relaybus.Bus
	first *fleettest.Process
}

// comebackWith is without the process.
func comebackWith(t *testing.T) *comeback {
	t.Helper()
	c := &comeback{url: newShopURL(t), lease: 500 * time.Millisecond}
	c.pool = newPool(t, c.url)
	c.store = newStore(t, c.pool, postgres.Config{})
	c.bus = steeringBus(t, c.store)
	return c
}

func newComeback(t *testing.T, handler, result string) *comeback {
	t.Helper()
	c := comebackWith(t)
	c.first = fleettest.Launch(t, c.program("first", "w", true))
	m := fleettest.OrderPlaced.New(fleettest.OrderOf{ID: "o", Result: result}, relaybus.ID("o"), relaybus.Key("k"))
	if handler == fleettest.SteeredTx {
		m = fleettest.OrderBooked.New(fleettest.OrderOf{ID: "o", Result: result}, relaybus.ID("o"), relaybus.Key("k"))
	}
	c.place(t, m)
	c.first.Hear(t, fleettest.SaidStart, func(e fleettest.Entry) bool { return e.Handler == handler })
	return c
}

// steeringBus is a started bus that publishes for the steered handlers.
func steeringBus(t *testing.T, s store.Store) *relaybus.Bus {
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

func (c *comeback) program(name, owner string, hold bool) fleettest.Program {
	return fleettest.Program{
		Name: name, Role: "work", Database: c.url, Owner: owner, Steered: true, Hold: hold,
		Lease: c.lease, Poll: 50 * time.Millisecond,
		// Claims fail while a stopped process is in their way; that is not what these tests are about.
		Faults: true,
	}
}

func (c *comeback) place(t *testing.T, m relaybus.Message) {
	t.Helper()
	if err := c.bus.Transaction(t.Context(), func(ctx context.Context) error { return c.bus.Publish(ctx, m) }); err != nil {
		t.Fatalf("publish: %v", err)
	}
}

// stop stops the first process, and returns when it has stopped.
func (c *comeback) stop(t *testing.T) {
	t.Helper()
	c.first.Signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.first.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%s did not stop: %v", c.first.Name, err)
	}
}

// hearWithin waits until the process has handled the events, in whatever order.
func hearWithin(t *testing.T, p *fleettest.Process, patience time.Duration, events ...string) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var said []string
	for {
		select {
		case e, ok := <-p.Said():
			if !ok {
				t.Fatalf("%s has ended", p.Name)
			}
			if e.What == fleettest.SaidSucceeded {
				events = slices.DeleteFunc(events, func(id string) bool { return id == e.Event })
			}
			if len(events) == 0 {
				return
			}
			if e.Text != "" {
				said = append(said, e.What+" "+e.Text)
			}
		case <-timer.C:
			t.Fatalf("I6: %s has not handled %q after %v; it said %d errors, the last are %q",
				p.Name, events, patience, len(said), said[max(0, len(said)-3):])
		}
	}
}

// check finds so many orders completed once, and nothing else.
func (c *comeback) check(t *testing.T, completions int) {
	t.Helper()
	for what, text := range leftovers() {
		if n := count(t, c.pool, text); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	if n := count(t, c.pool, `SELECT count(*) FROM relaybus_completions c CROSS JOIN LATERAL unnest(c.events)`); n != completions {
		t.Errorf("%d completions, want %d", n, completions)
	}
	booked := count(t, c.pool, `SELECT count(*) FROM relaybus_events WHERE type = 'order.booked.v1'`)
	if n := count(t, c.pool, `SELECT count(*) FROM effects`); n != booked {
		t.Errorf("%d effects, want %d", n, booked)
	}
}
