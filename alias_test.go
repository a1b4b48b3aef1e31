package relaybus_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// B21, Z14: a renamed handler works off what is stored under its old id, in
// order, and never handles an event twice.
func TestAlias(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		var ran trail
		old := newBedOn(t, s, nil, things("old", ran.handle))
		old.publish(raw("done", relaybus.Key("k")))
		old.drain()
		old.publish(raw("left", relaybus.Key("k")))
		renamed := newBedOn(t, s.Instance(), nil, things("new", ran.handle, relaybus.Aliases("old")))
		renamed.publish(raw("next", relaybus.Key("k")), raw("done"), raw("left"))
		if n := renamed.drain(); n != 2 {
			t.Errorf("Drain ran %d", n)
		}
		if got := ran.took(); !slices.Equal(got, []string{"done", "left", "next"}) {
			t.Errorf("ran %q", got)
		}
		if n := renamed.seen.count("succeeded new left 1"); n != 1 {
			t.Errorf("hooks: %q", renamed.seen.took())
		}
	})
}

// A process that still runs the old id during a rolling deployment learns of
// the new one: no delivery is made twice, none is left.
func TestAliasDuringRollingDeployment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		o, n := newDesk(t), newDesk(t)
		old := newBedOn(t, s, nil, things("old", o.heed)).start()
		renamed := newBedOn(t, s.Instance(), nil, things("new", n.heed, relaybus.Aliases("old"))).start()
		pass(1500 * time.Millisecond)
		for i, b := range []*bed{old, renamed, old, renamed} {
			b.publish(raw(string(rune('a'+i)), relaybus.Key("k")))
		}
		for _, want := range []string{"a", "b", "c", "d"} {
			var c *call
			select {
			case c = <-o.calls:
			case c = <-n.calls:
			case <-time.After(time.Minute):
				t.Fatalf("nobody runs %s", want)
			}
			if c.event.ID != want {
				t.Errorf("%s runs, want %s", c.event.ID, want)
			}
			o.idle()
			n.idle()
			c.reply <- nil
		}
		pass(time.Minute)
		o.idle()
		n.idle()
	})
}
