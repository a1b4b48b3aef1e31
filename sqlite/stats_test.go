package sqlite_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// The oldest due delivery is found among ready ones without reading them, and
// among parked ones; what runs does not count.
func TestOldestDue(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{Synchronous: sqlite.Normal})
	at := func(id, key, handler string, before time.Duration) {
		e := b.event(id, key, handler)
		e.DueAt = b.now.Add(-before)
		b.publish(e)
	}
	at("runs", "k", "h", 9*time.Minute)
	if got := b.claim(1, "h"); len(got) != 1 {
		t.Fatalf("claimed %v", got)
	}
	b.publish(b.events(500, "", "h")...)
	at("old", "", "h", 5*time.Minute)
	at("older", "", "g", 7*time.Minute)
	at("future", "", "f", -time.Minute)
	before := sqlite.RowsRead(b.s)
	stats := b.stats()
	if n := sqlite.RowsRead(b.s) - before; n > 400 { // up to two for each of 256 lanes, of which few are older
		t.Errorf("%d rows were read for 500 deliveries", n)
	}
	check := func(stats store.Stats, want ...time.Duration) {
		t.Helper()
		for i, handler := range []string{"f", "g", "h"} {
			oldest := stats.Handlers[i].OldestDueAt
			if stats.Handlers[i].Handler != handler || (want[i] == 0) != oldest.IsZero() ||
				(want[i] != 0 && !oldest.Equal(b.now.Add(-want[i]))) {
				t.Errorf("%+v, want %v before %v", stats.Handlers[i], want[i], b.now)
			}
		}
		if oldest := b.now.Add(-max(want[0], want[1], want[2])); !stats.OldestDueAt.Equal(oldest) {
			t.Errorf("the oldest of all: %v, want %v", stats.OldestDueAt, oldest)
		}
	}
	check(stats, 0, 7*time.Minute, 5*time.Minute)
	b.exec(`UPDATE relaybus_deliveries SET key = 'k', state = 1, due = due - 180000
		WHERE event = (SELECT seq FROM relaybus_events WHERE id = 'old')`)
	check(b.stats(), 0, 7*time.Minute, 8*time.Minute)
}

// A handler that was never recorded is listed while it has deliveries, whatever
// their state.
func TestHandlersFromDeliveries(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	ids := []string{"dead", "held", "parked", "ready"}
	for i, handler := range append(ids, "done") {
		b.publish(b.event(handler, "k", handler))
		if handler == "done" {
			b.complete(b.claim(1, handler)...)
			continue
		}
		b.exec(`UPDATE relaybus_deliveries SET state = ` + string("3210"[i]) + ` WHERE event = ` + string("1234"[i]))
	}
	list, err := b.s.Handlers(t.Context())
	if err != nil {
		t.Fatalf("handlers: %v", err)
	}
	var got []string
	for _, h := range list {
		got = append(got, h.ID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("listed %v", got)
	}
}

// An owner that has ended is forgotten, and can begin again.
func TestRelinquishForgets(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	for range 2 {
		b.publish(b.events(1, "", "h")...)
		got := b.claim(1, "h")
		if len(got) != 1 {
			t.Fatalf("claimed %v", got)
		}
		b.complete(got...)
		if err := b.s.Relinquish(t.Context(), "w", b.now); err != nil {
			t.Fatalf("relinquish: %v", err)
		}
		if n := sqlite.Workers(b.s); n != 0 {
			t.Errorf("%d owners are remembered", n)
		}
	}
}

// The greatest numbers there are make no difference.
func TestGreatestNumbers(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.publish(b.events(3, "")...)
	r, err := b.s.Purge(t.Context(), store.PurgeRequest{CompletedBefore: b.now.Add(time.Hour), Limit: math.MaxInt})
	if err != nil || r.Events != 3 {
		t.Errorf("purge: %+v, %v", r, err)
	}
	if s, err := sqlite.OpenConfig(b.path, sqlite.Config{BusyTimeout: 25 * time.Hour}); err == nil {
		t.Errorf("a busy timeout that SQLite can't count is accepted: %v", s.Close())
	}
}
