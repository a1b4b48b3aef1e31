package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/fleettest"
)

// plainHandler handles placed orders, and notes that.
func plainHandler(d *diary, handle func(e *relaybus.Event[fleettest.OrderOf]) error) relaybus.Handler {
	return fleettest.OrderPlaced.Handle("plain", func(_ context.Context, e *relaybus.Event[fleettest.OrderOf]) error {
		d.executed(e.Attempt)
		return handle(e)
	})
}

func placed(id string) relaybus.Message {
	return fleettest.OrderPlaced.New(fleettest.OrderOf{ID: id}, relaybus.ID(id), relaybus.Key("k"))
}

// F04 I7: a publish is committed, or not, or nobody knows; whichever it is, so it is in the database. When nobody knows,
// publishing again makes it one event, which is handled once.
func TestPublishOutcomes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// fault breaks something while the transaction is open; the returned function waits for it.
		fault   func(l *line) (wait func())
		before  func(l *line) func(ctx context.Context, tx pgx.Tx) error
		want    relaybus.Outcome
		present bool
	}{
		{name: "committed", want: relaybus.Committed, present: true},
		{
			name: "the server refuses the commit", want: relaybus.NotCommitted,
			before: func(*line) func(ctx context.Context, tx pgx.Tx) error {
				return func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO late VALUES (7)`)
					return err
				}
			},
		},
		{
			name: "the connection breaks before the commit", want: relaybus.NotCommitted,
			before: func(l *line) func(ctx context.Context, tx pgx.Tx) error {
				return func(ctx context.Context, tx pgx.Tx) error {
					l.proxy.Cut()
					_, err := tx.Exec(ctx, `SELECT 1`)
					return err
				}
			},
		},
		{
			name: "the connection breaks before the commit, which the user does not mind", want: relaybus.NotCommitted,
			before: func(l *line) func(ctx context.Context, tx pgx.Tx) error {
				return func(ctx context.Context, tx pgx.Tx) error {
					l.proxy.Cut()
					if _, err := tx.Exec(ctx, `SELECT 1`); err == nil {
						return errors.New("a broken connection works")
					}
					return nil
				}
			},
		},
		{
			name: "the reply is lost", want: relaybus.Unknown, present: true,
			fault: func(l *line) func() { c := l.loseReply(transaction, false); return func() { l.happened(c) } },
		},
		{
			name: "the commit is lost", want: relaybus.Unknown,
			fault: func(l *line) func() { c := l.loseReply(transaction, true); return func() { l.happened(c) } },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, d := newLine(t), newDiary()
			administer(t, t.Context(), l.direct.Config().ConnString(), `CREATE TABLE late (id text REFERENCES orders DEFERRABLE INITIALLY DEFERRED)`)
			bus := l.start(d, plainHandler(d, func(*relaybus.Event[fleettest.OrderOf]) error { return nil }))
			l.warm(d, placed("first"))

			wait := func() {}
			if test.fault != nil {
				wait = test.fault(l)
			}
			var before func(ctx context.Context, tx pgx.Tx) error
			if test.before != nil {
				before = test.before(l)
			}
			err := place(t.Context(), bus, "o", before)
			wait()
			if got := relaybus.OutcomeOf(err); got != test.want {
				t.Errorf("the outcome is %v, want %v: %v", got, test.want, err)
			}
			if errors.Is(err, relaybus.ErrOutcomeUnknown) != (test.want == relaybus.Unknown) {
				t.Errorf("the error is %v", err)
			}
			if got := l.exists("o"); got != test.present {
				t.Errorf("I7: the event is there: %v, want %v", got, test.present)
			}
			if err := place(t.Context(), bus, "o", nil); err != nil {
				t.Fatalf("publish again: %v", err)
			}
			if !l.exists("o") {
				t.Error("I7: the event that was published again is not there")
			}
			d.await(t, 1)
			l.settled(2)
			if got := d.executions(); !slices.Equal(got, []int{1}) {
				t.Errorf("executions %v, want one", got)
			}
		})
	}
}

// F04 I7: transactions whose time is over in the middle of them, or in their commit.
func TestPublishWithoutTime(t *testing.T) {
	t.Parallel()
	const publishes, writers = 400, 4
	l, d := newLine(t), newDiary()
	bus := l.start(d, plainHandler(d, func(*relaybus.Event[fleettest.OrderOf]) error { return nil }))
	l.warm(d, placed("first"))
	outcomes := make([]relaybus.Outcome, publishes)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := w; i < publishes; i += writers {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%80)*time.Millisecond/2)
				outcomes[i] = relaybus.OutcomeOf(place(ctx, bus, fmt.Sprintf("o-%d", i), nil))
				cancel()
			}
		})
	}
	group.Wait()
	seen := make(map[relaybus.Outcome]int)
	for i, outcome := range outcomes {
		seen[outcome]++
		there := l.exists(fmt.Sprintf("o-%d", i))
		if outcome == relaybus.Committed && !there || outcome == relaybus.NotCommitted && there {
			t.Errorf("I7: the outcome of %d is %v, and it is there: %v", i, outcome, there)
		}
	}
	t.Logf("outcomes: %v", seen)
	if seen[relaybus.Committed] == 0 || seen[relaybus.NotCommitted] == 0 {
		t.Errorf("want both kinds of outcomes")
	}
	for i := range publishes {
		if err := place(t.Context(), bus, fmt.Sprintf("o-%d", i), nil); err != nil {
			t.Fatalf("publish %d again: %v", i, err)
		}
	}
	d.await(t, publishes)
	l.settled(publishes + 1)
	if got := d.executions(); len(got) != publishes {
		t.Errorf("%d executions, want %d", len(got), publishes)
	}
}

// F04 I6: a claim of which the worker did not hear is taken back by its next one, whatever has become of it. Nothing waits
// for the end of the lease, no attempt is charged, and nothing runs twice.
func TestClaimWithoutReply(t *testing.T) {
	t.Parallel()
	for name, absent := range map[string]bool{"the reply is lost": false, "the commit is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := newLine(t), newDiary()
			l.start(d, plainHandler(d, func(*relaybus.Event[fleettest.OrderOf]) error { return nil }))
			l.warm(d, placed("first"))
			lost := l.loseReply("addClaim", absent)
			for i := range 3 {
				l.publishDirect(placed(fmt.Sprintf("o-%d", i)))
			}
			l.happened(lost)
			d.await(t, 3)
			l.settled(4)
			if got := d.executions(); !slices.Equal(got, []int{1, 1, 1}) {
				t.Errorf("I3: executions %v, want one of each of three", got)
			}
			if d.unknown() == 0 {
				t.Errorf("I7: no error says that the outcome is unknown: %v", d.errors())
			}
			if n := count(t, l.direct, `SELECT count(*) FROM relaybus_claims`); n > 1 {
				t.Errorf("%d claim records are left", n)
			}
		})
	}
}

// F04: the same when the worker ends instead of claiming again.
func TestClaimWithoutReplyIsRelinquished(t *testing.T) {
	t.Parallel()
	l, d := newLine(t), newDiary()
	bus := l.start(d, plainHandler(d, func(*relaybus.Event[fleettest.OrderOf]) error { return nil }))
	l.warm(d, placed("first"))
	lost := l.loseReply("addClaim", false)
	l.publishDirect(placed("o"))
	l.happened(lost)
	if err := bus.Stop(t.Context()); err != nil {
		t.Fatalf("stop: %v", err)
	}
	for what, text := range leftovers() {
		if what == "unfinished deliveries" {
			continue
		}
		if n := count(t, l.direct, text); n != 0 {
			t.Errorf("%d %s after the end of the only worker", n, what)
		}
	}
	again := newDiary()
	(&line{t: t, proxy: l.proxy, direct: l.direct, store: l.store}).start(again,
		plainHandler(again, func(*relaybus.Event[fleettest.OrderOf]) error { return nil }))
	fleettest.Await(t, l.store, nil)
	got := append(d.executions(), again.executions()...)
	if !slices.Equal(got, []int{1}) {
		t.Errorf("executions %v, want one", got)
	}
}

// F04 I3: whatever has become of a settlement of which the worker did not hear, it is there once, and nothing runs again
// because of it.
func TestSettlementWithoutReply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, of string
		fail     func(attempt int) error
		// executions, completions and dead are what is to come of it, lost and known how the attempts end, by whether
		// the commit of the first settlement was carried out.
		executions        []int
		completions, dead int
		lost, known       []string
	}{
		{
			name: "completion", of: "complete", fail: func(int) error { return nil },
			executions: []int{1}, completions: 2,
			lost: []string{fleettest.SaidLost}, known: []string{fleettest.SaidSucceeded},
		},
		{
			name: "failure", of: "reschedule", fail: func(attempt int) error {
				if attempt == 1 {
					return errors.New("the first attempt fails")
				}
				return nil
			},
			executions: []int{1, 2}, completions: 2,
			lost:  []string{fleettest.SaidLost, fleettest.SaidSucceeded},
			known: []string{fleettest.SaidRetried, fleettest.SaidSucceeded},
		},
		{
			name: "death", of: "bury", fail: func(int) error { return relaybus.Permanent(errors.New("it fails for good")) },
			executions: []int{1}, completions: 1, dead: 1,
			lost: []string{fleettest.SaidLost}, known: []string{fleettest.SaidBuried},
		},
	} {
		for name, absent := range map[string]bool{"the reply is lost": false, "the commit is lost": true} {
			t.Run(test.name+" "+name, func(t *testing.T) {
				t.Parallel()
				l, d := newLine(t), newDiary()
				var lost <-chan struct{}
				l.start(d, plainHandler(d, func(e *relaybus.Event[fleettest.OrderOf]) error {
					if e.ID == "first" {
						return nil
					}
					if e.Attempt == 1 {
						lost = l.loseReply(test.of, absent)
					}
					return test.fail(e.Attempt)
				}))
				l.warm(d, placed("first"))
				l.publishDirect(placed("o"))
				want := test.lost
				if absent {
					want = test.known
				}
				if got := d.await(t, len(want)); !slices.Equal(got, want) {
					t.Errorf("the attempts have ended with %v, want %v", got, want)
				}
				l.happened(lost)
				l.settled(test.completions)
				if got := d.executions(); !slices.Equal(got, test.executions) {
					t.Errorf("I3: executions %v, want %v", got, test.executions)
				}
				if n := count(t, l.direct, `SELECT count(*) FROM relaybus_deliveries WHERE state = 3`); n != test.dead {
					t.Errorf("%d deliveries are dead, want %d", n, test.dead)
				}
				if d.unknown() == 0 {
					t.Errorf("I7: no error says that the outcome is unknown: %v", d.errors())
				}
			})
		}
	}
}

// F04 I3: the effect of a transactional handler happens once, whatever has become of a commit of which the worker did not
// hear, and the handler runs again only when it was not carried out.
func TestTransactionalHandlerWithoutReply(t *testing.T) {
	t.Parallel()
	for name, absent := range map[string]bool{"the reply is lost": false, "the commit is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := newLine(t), newDiary()
			var once sync.Once
			var lost <-chan struct{}
			var bus *relaybus.Bus
			bus = l.start(d, fleettest.OrderPlaced.Handle("transactional",
				func(ctx context.Context, e *relaybus.Event[fleettest.OrderOf]) error {
					d.executed(e.Attempt)
					if e.ID != "first" {
						once.Do(func() { lost = l.loseReply(transaction, absent) }) //nolint:contextcheck // The test outlives it.
					}
					if err := addEffect(ctx, e.ID); err != nil {
						return err
					}
					return bus.Publish(ctx, fleettest.OrderBooked.New(fleettest.OrderOf{ID: e.ID}, relaybus.ID("b-"+e.ID)))
				}, relaybus.Transactional()))
			l.warm(d, placed("first"))
			l.publishDirect(placed("o"))
			l.publishDirect(placed("p")) // It follows in the key.
			unheard, executions := 1, 2
			if absent {
				unheard, executions = 0, 3
			}
			// The handler pauses after an outage, and gives back what it has claimed.
			d.awaitThat(t, func(said []string) bool {
				return times(said, fleettest.SaidSucceeded) == 2-unheard && times(said, fleettest.SaidLost) == unheard
			})
			l.happened(lost)
			l.settled(3)
			if got := d.executions(); len(got) != executions {
				t.Errorf("I3: executions %v, want %d", got, executions)
			}
			rows, err := l.direct.Query(t.Context(), `SELECT id FROM effects ORDER BY n`)
			if err != nil {
				t.Fatalf("read effects: %v", err)
			}
			effects, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("read effects: %v", err)
			}
			if got := strings.Join(effects, " "); got != "first o p" {
				t.Errorf("I3: effects %s, want one of each, in their order", got)
			}
			if n := l.count(`SELECT count(*) FROM relaybus_events WHERE type = 'order.booked.v1'`); n != 3 {
				t.Errorf("%d events were published by the handler, want 3", n)
			}
		})
	}
}
