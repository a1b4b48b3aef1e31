package postgres_test

import (
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// S1: after the tables were dropped, Setup makes them anew for a store that is in use, and nothing of what it remembers
// of the old ones gets in the way.
func TestSetupAfterTheTablesWereDropped(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	other := d.second()
	joined := func(id string) {
		t.Helper()
		// Each connection of the pool remembers which database it leads to.
		tx := begin(t, d.pool)
		if _, err := d.s.Append(t.Context(), tx.Tx, []store.NewEvent{d.event(id, "", "g")}, d.now); err != nil {
			t.Errorf("append %s to a joined transaction: %v", id, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
	d.publish(d.events(5, true, "first", "h")...)
	joined("joined")
	lost := d.claim(20, "first", "h")
	if len(lost) != 10 {
		t.Fatalf("claimed %d", len(lost))
	}
	d.exec(`DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'relaybus_%' LOOP
		EXECUTE format('DROP TABLE %I', name); END LOOP; END $$`)
	// Another process sets up first. The number of h is another one there, that of first.
	for _, one := range []*desk{other, d} {
		if err := one.s.Setup(t.Context()); err != nil {
			t.Fatalf("set up: %v", err)
		}
	}
	d.publish(d.events(3, true, "h")...)
	joined("joined again")
	for _, c := range lost {
		ok, err := d.s.Settle(t.Context(), "w", []store.Settlement{{Lease: c.Lease, Action: store.Complete}}, d.now)
		if err != nil || ok[0] {
			t.Errorf("a settlement of a delivery that was dropped: %v, %v", ok, err)
		}
	}
	d.now = d.now.Add(time.Second)
	got := d.claim(10, "h", "g", "first")
	if len(got) != 4 {
		t.Errorf("claimed %q, want 3 of h and one of g", idsOf(got))
	}
	d.complete(got...)
	d.wantCounts(0, 0)
}
