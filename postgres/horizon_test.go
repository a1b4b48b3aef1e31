package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// P3: a look that begins late finds what others publish, keeps what the owner itself gave back before, and what another
// process gave back is found by the next look at everything.
func TestLookFromHorizon(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabaseURL(t), func(c *pgxpool.Config) { c.MaxConns = 4 })
	d := newDesk(t, pool, postgres.Config{})
	other := d.second()
	d.publish(d.events(3, false, "h")...)
	first := d.claim(10, "h")
	if len(first) != 3 {
		t.Fatalf("claimed %q", idsOf(first))
	}
	postgres.Narrow(d.s, "w", "h", time.Hour)

	d.now = d.now.Add(time.Minute)
	other.now = d.now
	late := other.events(2, false, "h")
	other.publish(late...)
	got := d.claim(10, "h")
	want := []string{late[0].ID, late[1].ID}
	slices.Sort(want)
	if ids := idsOf(got); !slices.Equal(slices.Sorted(slices.Values(ids)), want) {
		t.Fatalf("claimed %q, want %q", ids, want)
	}
	d.complete(got...)

	d.settle(store.Release, first[0])
	d.now = d.now.Add(2 * time.Second)
	if again := d.claim(1, "h"); len(again) != 1 || again[0].Event.ID != first[0].Event.ID {
		t.Fatalf("claimed %q, want what was given back", idsOf(again))
	}
	old := other.events(1, false, "h")
	old[0].DueAt = d.now.Add(-time.Minute) // As if it had come back.
	other.publish(old...)
	d.now = d.now.Add(2 * time.Second)
	if hidden := d.claim(10, "h"); len(hidden) != 0 {
		t.Fatalf("claimed %q from before the horizon", idsOf(hidden))
	}
	postgres.Narrow(d.s, "w", "h", 0)
	d.now = d.now.Add(2 * time.Second)
	if found := d.claim(10, "h"); len(found) != 1 || found[0].Event.ID != old[0].ID {
		t.Errorf("claimed %q, want what came back", idsOf(found))
	}
}
