package postgres_test

import (
	"context"
	"testing"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/postgres"
)

// F04 I1 I2 I7: so it is with an event that travels with the commit: it and the order are both there or neither, and the
// outcome says so or says that nobody knows.
func TestLateAppendOutcomes(t *testing.T) {
	t.Parallel()
	const travelling = "addFreshKeyed"
	for name, test := range map[string]struct {
		fault   func(l *line) (wait func())
		refused bool
		want    relaybus.Outcome
		present bool
	}{
		"committed":                     {want: relaybus.Committed, present: true},
		"the server refuses the commit": {refused: true, want: relaybus.NotCommitted},
		"the reply is lost": {
			fault: func(l *line) func() { c := l.loseReply(travelling, false); return func() { l.happened(c) } },
			want:  relaybus.Unknown, present: true,
		},
		"the commit is lost": {
			fault: func(l *line) func() { c := l.loseReply(travelling, true); return func() { l.happened(c) } },
			want:  relaybus.Unknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := newLine(t), newDiary()
			administer(t, t.Context(), l.direct.Config().ConnString(), `CREATE TABLE late (id text REFERENCES orders DEFERRABLE INITIALLY DEFERRED)`)
			bus := l.start(d, plainHandler(d, func(*relaybus.Event[fleettest.OrderOf]) error { return nil }))
			order := func(id string, refused bool) error {
				return bus.Transaction(t.Context(), func(ctx context.Context) error {
					if err := addOrder(ctx, id, true); err != nil {
						return err
					}
					if refused {
						if _, err := postgres.Tx(ctx).Exec(ctx, `INSERT INTO late VALUES (7)`); err != nil {
							return err
						}
					}
					return bus.Publish(ctx, fleettest.OrderPlaced.New(fleettest.OrderOf{ID: id}, relaybus.Key(id)))
				})
			}
			if err := order("first", false); err != nil {
				t.Fatalf("order: %v", err)
			}
			wait := func() {}
			if test.fault != nil {
				wait = test.fault(l)
			}
			err := order("o", test.refused)
			wait()
			if got := relaybus.OutcomeOf(err); got != test.want {
				t.Errorf("the outcome is %v, want %v: %v", got, test.want, err)
			}
			var event, row bool
			err = l.direct.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM relaybus_events WHERE key = 'o'),
				EXISTS (SELECT FROM orders WHERE id = 'o')`).Scan(&event, &row)
			if err != nil || event != test.present || row != test.present {
				t.Errorf("the event is there: %v, the order: %v, want %v: %v", event, row, test.present, err)
			}
			d.await(t, map[bool]int{false: 1, true: 2}[test.present])
		})
	}
}
