package relaybus_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func typed(name, id string) relaybus.Message {
	return relaybus.Raw(name, json.RawMessage(`1`), relaybus.ID(id))
}

// B23: an older version of a handler that starts again takes no event type away
// from the newer one.
func TestCatalogKeepsTypesOfOtherVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		d := newDesk(t)
		newBedOn(t, s.Instance(), nil, relaybus.Handle("h", []string{"a", "b"}, d.heed)).start()
		newBedOn(t, s.Instance(), nil, relaybus.Handle("h", []string{"a"}, d.heed)).start()
		p := newBedOn(t, s, func(c *relaybus.Config) { c.PublishOnly = true }).start()
		pass(5 * time.Second)
		p.publish(typed("b", "e-1"))
		if n := p.stats().Pending + p.stats().Running; n != 1 {
			t.Errorf("%d deliveries for the newer version's type, want 1", n)
		}
		d.next().reply <- nil
	})
}

// A handler never gets an event type that it does not take: another version of
// it may have asked for it.
func TestHandlerGetsNoForeignType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		d := newDesk(t)
		p := newBedOn(t, s, func(c *relaybus.Config) {
			c.PublishOnly = true
			c.Retry = relaybus.RetryPolicy{MaxAttempts: 2, Base: time.Second}
		}, relaybus.Handle("h", []string{"order.v2"}, d.heed))
		p.publish(typed("order.v2", "e-1"))
		old := newBedOn(t, s.Instance(), func(c *relaybus.Config) {
			c.Retry = relaybus.RetryPolicy{MaxAttempts: 2, Base: time.Second}
		}, relaybus.Handle("h", []string{"order.v1"}, d.heed)).start()
		pass(time.Minute)
		d.idle()
		if n := old.stats().Dead; n != 1 {
			t.Errorf("%d dead, want the one that nobody here takes", n)
		}
	})
}

// B21: a handler that was renamed without an alias is reported, once its last
// process is gone for a while.
func TestOrphansAfterRename(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		d := newDesk(t)
		before := newBedOn(t, s.Instance(), nil, things("old", d.heed)).start()
		if err := before.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := newBedOn(t, s, nil, things("new", d.heed)).start()
		after.publish(raw("e-1"))
		d.next().reply <- nil // the one of new
		if list, err := after.Orphans(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("at once: %v, %v", list, err)
		}
		pass(10 * time.Minute)
		list, err := after.Orphans(t.Context())
		if err != nil || len(list) != 1 || list[0].Handler != "old" || list[0].Deliveries != 1 {
			t.Errorf("after 10 minutes: %v, %v", list, err)
		}
	})
}

// A header's value stays a value.
func TestHeaderValueCanNotGoOn(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	err := b.Publish(t.Context(), relaybus.Raw("thing.done", json.RawMessage(`1`),
		relaybus.Header("x", json.RawMessage(`1,"tenant":"evil"`))))
	if relaybus.OutcomeOf(err) != relaybus.NotCommitted || err == nil {
		t.Errorf("Publish: %v", err)
	}
}
