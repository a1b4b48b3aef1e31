package sqlite_test

import (
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// idle claims and returns how many write transactions that took.
func (b *bed) idle(handlers ...string) int64 {
	b.t.Helper()
	before := sqlite.Writes(b.s)
	if got := b.claim(10, handlers...); len(got) != 0 {
		b.t.Fatalf("claimed %d, want nothing", len(got))
	}
	return sqlite.Writes(b.s) - before
}

// L1: a claim with nothing to take, take over or renew writes nothing.
func TestIdleClaimWritesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	if n := b.idle("h"); n != 0 {
		t.Errorf("on an empty database: %d writes", n)
	}
	future := b.event("later", "", "h")
	future.DueAt = b.now.Add(time.Hour)
	b.publish(future)
	if n := b.idle("h"); n != 0 {
		t.Errorf("before the due time: %d writes", n)
	}
	b.publish(b.events(30, "k", "h")...)
	b.publish(b.events(5, "", "g")...)
	running := b.claim(1, "h")
	b.idle("h") // parks what waits for the key
	for range 3 {
		if n := b.idle("h"); n != 0 {
			t.Errorf("while something runs and its key waits: %d writes", n)
		}
		b.now = b.now.Add(time.Second)
	}
	if err := b.s.PauseHandler(t.Context(), "g", true, b.now); err != nil {
		t.Fatalf("pause: %v", err)
	}
	b.idle("g")
	if n := b.idle("g"); n != 0 {
		t.Errorf("with a paused handler: %d writes", n)
	}
	b.now = b.now.Add(12 * time.Second) // of 30
	if n := b.idle("h"); n != 1 {
		t.Errorf("when the lease is to be renewed: %d writes", n)
	}
	b.complete(running...)
}

// S6: a claim and a settlement are one write transaction each, whatever they hold.
func TestTransactionsPerStep(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	for _, n := range []int{1, 10, 300} {
		b.publish(b.events(n, "", "h")...)
		before := sqlite.Writes(b.s)
		got := b.claim(1000, "h")
		claims := sqlite.Writes(b.s) - before
		list := make([]store.Settlement, len(got))
		for i, c := range got {
			list[i] = store.Settlement{Lease: c.Lease, Action: store.Action(i%4) + store.Complete, DueAt: b.now}
		}
		if _, err := b.s.Settle(t.Context(), "w", list, b.now); err != nil {
			t.Fatalf("settle: %v", err)
		}
		if settles := sqlite.Writes(b.s) - before - claims; claims != 1 || settles != 1 {
			t.Errorf("%d deliveries: %d and %d transactions", n, claims, settles)
		}
		b.complete(b.claim(1000, "h")...)
	}
}

// S10 F12: what a claim reads does not grow with what waits, whoever it is for.
func TestRowsReadByClaim(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	rows := func() int64 {
		b.t.Helper()
		b.publish(b.events(10, "", "h")...)
		before := sqlite.RowsRead(b.s)
		got := b.claim(10, "h")
		n := sqlite.RowsRead(b.s) - before
		if len(got) != 10 {
			b.t.Fatalf("claimed %d", len(got))
		}
		b.complete(got...)
		return n
	}
	rows()
	small := rows()
	// The work of others, of the future, and a backlog of the handler's own.
	for range 20 {
		b.publish(b.events(200, "", "other")...)
		later := b.events(100, "", "h")
		for i := range later {
			later[i].DueAt = b.now.Add(time.Hour)
		}
		b.publish(later...)
	}
	if n := rows(); n > small+10 {
		t.Errorf("a claim reads %d rows beside others' work, and %d without", n, small)
	}
	b.publish(b.events(4000, "", "h")...)
	for range 5 {
		if n := rows(); n > small+300 { // A look hops over the 256 lanes.
			t.Errorf("a claim reads %d rows with a backlog, and %d without", n, small)
		}
	}
}

// F62: a purge of the last event does not let its sequence come back.
func TestSequenceIsNeverReused(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	var last int64
	for i := range 4 {
		b.publish(b.events(1, "k", "h")...)
		got := b.claim(10, "h")
		if got[0].Event.Sequence <= last {
			t.Errorf("round %d: sequence %d after %d", i, got[0].Event.Sequence, last)
		}
		last = got[0].Event.Sequence
		b.complete(got...)
		b.now = b.now.Add(time.Second)
		r, err := b.s.Purge(t.Context(), store.PurgeRequest{CompletedBefore: b.now, Limit: 10})
		if err != nil || r.Events != 1 {
			t.Fatalf("purge: %+v, %v", r, err)
		}
	}
}
