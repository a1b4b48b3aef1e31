package storetest

import (
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func purgeCases() []testCase {
	return []testCase{
		{name: "S13 B18 completed events go after their retention", run: purgeCompleted},
		{name: "S13 an event of several handlers goes after the last completion", run: purgeSharedEvent},
		{name: "S13 F39 the latest completion counts, whoever's clock runs behind", run: purgeClockBehind},
		{name: "S13 B18 dead deliveries are kept until DeadBefore", run: purgeDead},
		{name: "S13 Z13 held heads outlive every retention", run: purgeHeld},
		{name: "S13 an event that is still referenced stays", run: purgeReferenced},
		{name: "S13 an event of dead and completed deliveries", run: purgeMixed},
		{name: "S13 B6 the record keeps its id unique until it goes", run: purgeDeduplication},
		{name: "S13 events that never had a handler", run: purgeWithoutHandlers},
		{name: "S13 B17 cancelled and dropped deliveries count as completed", run: purgeCancelled},
		{name: "S13 a zero time keeps all of its kind", run: purgeZero},
		{name: "S13 purge works in batches", run: purgeBatches},
		{name: "S13 a late delivery keeps its event", run: purgeLateDelivery},
		{name: "S13 purge beside publishers and workers", run: purgeBesideWork},
	}
}

// purge runs batches until none is left, and adds them up.
func (b *bed) purge(r store.PurgeRequest) store.PurgeResult {
	b.t.Helper()
	var total store.PurgeResult
	for range 1000 {
		got, err := b.s.Purge(b.ctx(), r)
		if err != nil {
			b.t.Fatalf("purge: %v", err)
		}
		if got.Events > int64(r.Limit) || got.Deliveries > int64(r.Limit) || got.History > int64(r.Limit) {
			b.t.Fatalf("a batch of %d purged %+v", r.Limit, got)
		}
		total.Events += got.Events
		total.Deliveries += got.Deliveries
		total.History += got.History
		if !got.More {
			return total
		}
	}
	b.t.Fatal("purge never ends")
	return total
}

func (b *bed) wantPurged(r store.PurgeRequest, events, deliveries int64) {
	b.t.Helper()
	r.Limit = 1000
	if got := b.purge(r); got.Events != events || got.Deliveries != deliveries {
		b.t.Errorf("purged %d events and %d deliveries, want %d and %d", got.Events, got.Deliveries, events, deliveries)
	}
}

func (b *bed) exists(id string, want bool) {
	b.t.Helper()
	_, _, err := b.s.GetEvent(b.ctx(), id)
	if want && err != nil {
		b.t.Errorf("event %s: %v", id, err)
	}
	if !want {
		b.wantError(err, store.ErrNotFound)
	}
}

func purgeCompleted(b *bed) {
	b.publish(b.event("old", "k", "h"))
	b.complete("w", b.one("w", "h", "old"))
	completed := b.now
	b.pass(time.Hour)
	b.publish(b.event("young", "k", "h"))
	b.complete("w", b.one("w", "h", "young"))
	b.wantPurged(store.PurgeRequest{CompletedBefore: completed}, 0, 0)
	b.wantPurged(store.PurgeRequest{CompletedBefore: completed.Add(time.Millisecond)}, 1, 0)
	b.exists("old", false)
	b.exists("young", true)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now.Add(time.Hour)}, 1, 0)
	b.exists("young", false)
}

// purgeSharedEvent: handlers complete an event hours apart, in one batch with
// others and alone; the youngest completion counts.
func purgeSharedEvent(b *bed) {
	handlers := []string{"h0", "h1", "h2"}
	b.publish(b.numbered("e", 4, "", handlers...)...)
	start := b.now
	for i, handler := range handlers {
		got := b.claim("w", plenty, handler)
		if i == 1 {
			// Two completions of one handler, at two times.
			b.complete("w", got[:2]...)
			b.pass(30 * time.Minute)
			got = got[2:]
		}
		b.complete("w", got...)
		b.pass(time.Hour)
		b.wantPurged(store.PurgeRequest{CompletedBefore: start.Add(time.Duration(i) * time.Hour)}, 0, 0)
		for e := range 4 {
			b.exists(numberedName("e", e), true)
			b.wantAppended(b.publish(b.event(numberedName("e", e), "", handlers[:i+1]...))[0], false, 0)
		}
	}
	last := start.Add(2*time.Hour + 30*time.Minute)
	b.wantPurged(store.PurgeRequest{CompletedBefore: last}, 0, 0)
	b.wantPurged(store.PurgeRequest{CompletedBefore: last.Add(time.Millisecond)}, 4, 0)
}

func purgeClockBehind(b *bed) {
	b.publish(b.event("e", "", "h", "g"))
	early, late := b.one("w", "h", "e"), b.one("w", "g", "e")
	behind := b.now
	b.pass(time.Hour)
	b.complete("w", late)
	last := b.now
	b.now = behind
	b.complete("w", early)
	b.wantPurged(store.PurgeRequest{CompletedBefore: last}, 0, 0)
	b.exists("e", true)
	b.wantPurged(store.PurgeRequest{CompletedBefore: last.Add(time.Millisecond)}, 1, 0)
}

func purgeDead(b *bed) {
	b.dead("dead", "k", "h", false)
	died := b.now
	b.pass(time.Hour)
	b.dead("younger", "k", "h", false)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now.Add(time.Hour)}, 0, 0)
	b.counts(0, 0, 2)
	b.wantPurged(store.PurgeRequest{DeadBefore: died}, 0, 0)
	b.wantPurged(store.PurgeRequest{DeadBefore: died.Add(time.Millisecond)}, 1, 1)
	b.exists("dead", false)
	b.exists("younger", true)
	// A requeue starts the life again.
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "younger", Handler: "h"}}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	b.wantPurged(store.PurgeRequest{DeadBefore: b.now.Add(time.Hour)}, 0, 0)
	b.pass(2 * time.Hour)
	b.settle("w", bury(b.one("w", "h", "younger"), false))
	b.wantPurged(store.PurgeRequest{DeadBefore: b.now}, 0, 0)
	b.wantPurged(store.PurgeRequest{DeadBefore: b.now.Add(time.Millisecond)}, 1, 1)
}

func purgeHeld(b *bed) {
	b.dead("held", "k", "h", true)
	b.publish(b.event("waits", "k", "h"))
	b.pass(1000 * time.Hour)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now, DeadBefore: b.now}, 0, 0)
	b.none("w", "h")
	if d := b.delivery("held", "h"); !d.HoldsKey {
		b.t.Error("the purge released a held key")
	}
	if err := b.s.Skip(b.ctx(), store.DeliveryID{EventID: "held", Handler: "h"}, b.now); err != nil {
		b.t.Fatalf("skip: %v", err)
	}
	b.pass(time.Millisecond)
	b.wantPurged(store.PurgeRequest{DeadBefore: b.now}, 1, 1)
	b.complete("w", b.one("w", "h", "waits"))
}

func purgeReferenced(b *bed) {
	b.publish(b.event("pending", "k", "h", "g"), b.event("running", "", "h"))
	got := b.claim("w", plenty, "g")
	b.complete("w", got...)
	running := b.find(b.claim("w", plenty, "h"), "running")
	b.pass(100 * time.Hour)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now, DeadBefore: b.now}, 0, 0)
	b.exists("pending", true)
	b.exists("running", true)
	b.complete("w", running)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now, DeadBefore: b.now}, 0, 0)
	b.pass(time.Millisecond)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now, DeadBefore: b.now}, 1, 0)
}

func purgeMixed(b *bed) {
	// Completed by g, dead for h: neither retention alone takes the event.
	for _, id := range []string{"a", "b"} {
		b.publish(b.event(id, "", "h", "g"))
		b.settle("w", bury(b.one("w", "h", id), false))
		b.complete("w", b.one("w", "g", id))
	}
	b.pass(time.Hour)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now}, 0, 0)
	b.exists("a", true)
	b.wantPurged(store.PurgeRequest{DeadBefore: b.now}, 0, 2)
	b.exists("a", true)
	b.wantAppended(b.publish(b.event("a", "", "h", "g"))[0], false, 0)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now}, 2, 0)
	b.exists("a", false)
	b.exists("b", false)
}

func purgeDeduplication(b *bed) {
	b.publish(b.event("e", "k", "h"))
	b.complete("w", b.one("w", "h", "e"))
	b.pass(time.Hour)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now.Add(-2 * time.Hour)}, 0, 0)
	b.wantAppended(b.publish(b.event("e", "k", "h"))[0], false, 0)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now}, 1, 0)
	b.wantAppended(b.publish(b.event("e", "k", "h"))[0], true, 1)
	b.complete("w", b.one("w", "h", "e"))
}

func purgeWithoutHandlers(b *bed) {
	b.publish(b.event("none", "k"), b.event("later", ""))
	born := b.now
	b.pass(time.Hour)
	b.publish(b.event("young", ""), b.event("later", "", "h"))
	b.wantPurged(store.PurgeRequest{CompletedBefore: born}, 0, 0)
	b.wantPurged(store.PurgeRequest{DeadBefore: b.now}, 0, 0)
	b.wantPurged(store.PurgeRequest{CompletedBefore: born.Add(time.Millisecond)}, 1, 0)
	b.exists("none", false)
	b.exists("young", true)
	b.complete("w", b.one("w", "h", "later"))
}

func purgeCancelled(b *bed) {
	b.publish(b.event("cancelled", "", "h", "g"), b.event("dropped", "", "d"))
	b.pass(time.Hour)
	if err := b.s.CancelEvent(b.ctx(), "cancelled", b.now); err != nil {
		b.t.Fatalf("cancel: %v", err)
	}
	if n, err := b.s.DropPending(b.ctx(), "d", 10, b.now); n != 1 || err != nil {
		b.t.Fatalf("drop: %d, %v", n, err)
	}
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now, DeadBefore: b.now}, 0, 0)
	b.exists("cancelled", true)
	b.exists("dropped", true)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now.Add(time.Millisecond)}, 2, 0)
	b.exists("cancelled", false)
}

func purgeZero(b *bed) {
	b.publish(b.event("done", "", "h"), b.event("none", ""))
	b.complete("w", b.one("w", "h", "done"))
	b.dead("dead", "", "h", false)
	b.wantPurged(store.PurgeRequest{}, 0, 0)
	b.exists("done", true)
	b.exists("none", true)
	b.counts(0, 0, 1)
}

func purgeBatches(b *bed) {
	b.publish(b.numbered("e", 25, "", "h")...)
	b.complete("w", b.claim("w", plenty, "h")...)
	b.publish(b.numbered("d", 25, "", "h")...)
	for _, c := range b.claim("w", plenty, "h") {
		b.settle("w", bury(c, false))
	}
	b.pass(time.Hour)
	got := b.purge(store.PurgeRequest{CompletedBefore: b.now, DeadBefore: b.now, Limit: 4})
	if got.Events != 50 || got.Deliveries != 25 {
		b.t.Errorf("purged %+v, want 50 events and 25 deliveries", got)
	}
	b.counts(0, 0, 0)
	result, err := b.s.Purge(b.ctx(), store.PurgeRequest{CompletedBefore: b.now, DeadBefore: b.now, Limit: 4})
	if err != nil || result != (store.PurgeResult{}) {
		b.t.Errorf("a purge of nothing: %+v, %v", result, err)
	}
}

func purgeLateDelivery(b *bed) {
	b.publish(b.event("e", "k", "h"))
	b.complete("w", b.one("w", "h", "e"))
	b.pass(time.Hour)
	b.wantAppended(b.publish(b.event("e", "k", "h", "g"))[0], false, 1)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now.Add(time.Hour)}, 0, 0)
	b.complete("w", b.one("w", "g", "e"))
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now}, 0, 0)
	b.exists("e", true)
	b.pass(time.Millisecond)
	b.wantPurged(store.PurgeRequest{CompletedBefore: b.now}, 1, 0)
}

// purgeBesideWork purges everything that it may while others publish the same
// ids for more handlers and complete them: no delivery loses its event.
func purgeBesideWork(b *bed) {
	const rounds, events = 12, 10
	purger, publisher := b.open(), b.open()
	for round := range rounds {
		b.publish(b.numbered(numberedName("e", round), events, "", "h")...)
		got := b.claim("w", plenty, "h")
		b.complete("w", got...)
		b.pass(time.Second)
		now := b.now
		errs := make(chan error, 2)
		go func() {
			var err error
			for more := true; more && err == nil; {
				var result store.PurgeResult
				result, err = purger.Purge(b.ctx(), store.PurgeRequest{CompletedBefore: now, Limit: 2})
				more = result.More
			}
			errs <- err
		}()
		go func() {
			var err error
			for i := 0; i < events && err == nil; i++ {
				id := numberedName(numberedName("e", round), i)
				_, err = publish(b.ctx(), publisher, now, newEvent(id, "", now, "g"))
			}
			errs <- err
		}()
		for range cap(errs) {
			if err := <-errs; err != nil {
				b.t.Fatalf("round %d: %v", round, err)
			}
		}
		late := b.claim("w", plenty, "g")
		if len(late) != events {
			b.t.Fatalf("round %d: %d of %d late deliveries are there", round, len(late), events)
		}
		for _, c := range late {
			b.exists(c.Event.ID, true)
		}
		b.complete("w", late...)
	}
	b.counts(0, 0, 0)
}
