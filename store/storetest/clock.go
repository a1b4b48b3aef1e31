package storetest

import (
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func clockCases() []testCase {
	return []testCase{
		{name: "S11 a store in the year 2000", run: inYear(2000)},
		{name: "S11 a store in the year 2100", run: inYear(2100)},
		{name: "S11 the century changes under a running store", run: centuryChanges},
		{name: "S11 F39 a clock that jumps back", run: clockJumpsBack},
	}
}

// inYear runs a whole life of deliveries at a time that is far from every real
// clock: whatever a store compared with its own would be ages early or late.
func inYear(year int) func(b *bed) {
	return func(b *bed) {
		b.now = time.Date(year, time.January, 1, 0, 0, 0, 0, time.UTC)
		wholeLife(b)
	}
}

func centuryChanges(b *bed) {
	for _, year := range []int{2000, 2100, 1970} {
		b.t.Run(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Format("2006"), func(t *testing.T) {
			inner := b.fresh(t, Options{})
			inner.now = time.Date(year, time.December, 31, 23, 59, 45, 0, time.UTC)
			wholeLife(inner)
		})
	}
}

func wholeLife(b *bed) {
	born := b.now
	late := b.event("late", "", "h")
	late.DueAt = b.now.Add(time.Hour)
	b.publish(append(b.numbered("e", 4, "k", "h"), late, b.event("unkeyed", "", "h"))...)
	got := b.claim("w", plenty, "h")
	b.wantEvents(got, "e-0", "unkeyed")
	b.pass(term - time.Millisecond)
	b.none("other", "h")
	if held, err := b.s.Extend(b.ctx(), "w", []store.Lease{got[0].Lease, got[1].Lease}, b.now, term); err != nil || !held[0] || !held[1] {
		b.t.Fatalf("extend: %v, %v", held, err)
	}
	b.pass(term - time.Millisecond)
	b.none("other", "h")
	b.pass(2 * time.Millisecond)
	heirs := b.claim("heir", plenty, "h")
	b.wantEvents(heirs, "e-0", "unkeyed")
	first := b.find(heirs, "e-0")
	if first.Attempt != 2 || first.Lost != 1 || !first.Event.CreatedAt.Equal(born) || !first.DueAt.Equal(born) {
		b.t.Errorf("after the takeover: %+v", first)
	}
	b.complete("heir", b.find(heirs, "unkeyed"))
	b.settle("heir", reschedule(first, b.now.Add(time.Minute)))
	b.none("heir", "h")
	b.pass(time.Minute - time.Millisecond)
	b.none("heir", "h")
	b.pass(time.Millisecond)
	b.settle("heir", bury(b.one("heir", "h", "e-0"), false))
	died := b.now
	if d := b.delivery("e-0", "h"); !d.UpdatedAt.Equal(died) || d.Status != store.StatusDead {
		b.t.Errorf("the dead delivery: %+v", d)
	}
	for _, id := range []string{"e-1", "e-2", "e-3"} {
		b.complete("heir", b.one("heir", "h", id))
	}
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || !stats.OldestDueAt.IsZero() {
		b.t.Errorf("nothing is due, and the oldest due time is %v, %v", stats.OldestDueAt, err)
	}
	b.now = late.DueAt
	if stats, err = b.s.Stats(b.ctx(), b.now); err != nil || !stats.OldestDueAt.Equal(late.DueAt) {
		b.t.Errorf("the oldest due time is %v, %v; want %v", stats.OldestDueAt, err, late.DueAt)
	}
	b.complete("heir", b.one("heir", "h", "late"))
	if got := b.purge(store.PurgeRequest{CompletedBefore: born, DeadBefore: born, Limit: 100}); got.Events != 0 || got.Deliveries != 0 {
		b.t.Errorf("purged too early: %+v", got)
	}
	b.purge(store.PurgeRequest{CompletedBefore: b.now.Add(time.Millisecond), DeadBefore: died.Add(time.Millisecond), Limit: 100})
	for _, id := range []string{"e-0", "e-1", "late", "unkeyed"} {
		_, _, err := b.s.GetEvent(b.ctx(), id)
		b.wantError(err, store.ErrNotFound)
	}
}

// clockJumpsBack: a worker whose clock runs behind, or jumps back, claims less
// and takes over later; it never runs what another one runs.
func clockJumpsBack(b *bed) {
	b.publish(append(b.numbered("e", 3, "k", "h"), b.event("free", "", "h"))...)
	got := b.claim("w", plenty, "h")
	b.now = b.now.Add(-time.Hour)
	if b.taken("behind") {
		b.t.Fatal("a clock that runs behind took over")
	}
	b.publish(b.event("early", "", "h"))
	early := b.one("w", "h", "early")
	b.complete("w", append(got, early)...)
	b.none("w", "h") // e-1 is due in an hour.
	b.pass(time.Hour)
	c := b.one("w", "h", "e-1")
	b.now = b.now.Add(-time.Minute)
	// The lease is not shortened by a claim with an earlier clock.
	b.none("w", "h")
	b.pass(time.Minute + term - time.Millisecond)
	if b.taken("ahead") {
		b.t.Fatal("a claim with an earlier clock shortened the lease")
	}
	b.complete("w", c)
	b.complete("w", b.one("w", "h", "e-2"))
	b.counts(0, 0, 0)
}
