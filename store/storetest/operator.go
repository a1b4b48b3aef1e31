package storetest

import (
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func operatorCases() []testCase {
	return []testCase{
		{name: "B17 operations by the state of the delivery", run: operationsByState},
		{name: "B17 requeue is all or nothing", run: requeueAllOrNothing},
		{name: "B17 requeue starts the count again and keeps the error", run: requeueResets},
		{name: "B17 requeue by filter, the oldest first, up to a limit", run: requeueWhere},
		{name: "B17 bury a pending delivery", run: buryPending},
		{name: "B17 reschedule a pending delivery", run: reschedulePending},
		{name: "B17 cancel an event that nobody has claimed", run: cancelEvent},
		{name: "B17 B21 drop the pending deliveries of a handler", run: dropPending},
		{name: "B17 operators beside workers", run: operatorsBesideWorkers},
	}
}

func operationsByState(b *bed) {
	later := b.event("pending", "k1", "h")
	b.publish(later, b.event("running", "k2", "r"), b.event("dead", "k3", "d"), b.event("held", "k4", "e"), b.event("done", "", "f"))
	running := b.one("w", "r", "running")
	b.settle("w", bury(b.one("w", "d", "dead"), false))
	b.settle("w", bury(b.one("w", "e", "held"), true))
	b.complete("w", b.one("w", "f", "done"))
	ids := map[string]store.DeliveryID{
		"pending": {EventID: "pending", Handler: "h"}, "running": {EventID: "running", Handler: "r"},
		"dead": {EventID: "dead", Handler: "d"}, "held": {EventID: "held", Handler: "e"},
		"done": {EventID: "done", Handler: "f"}, "missing": {EventID: "missing", Handler: "h"},
		"other handler": {EventID: "pending", Handler: "other"},
	}
	state, runs, gone := store.ErrState, store.ErrRunning, store.ErrNotFound
	before := b.snapshot()
	for _, c := range []struct {
		name    string
		op      func(id store.DeliveryID) error
		refused map[string][]error
	}{
		{
			"requeue",
			func(id store.DeliveryID) error { return b.s.Requeue(b.ctx(), []store.DeliveryID{id}, b.now) },
			map[string][]error{"pending": {state}, "running": {state, runs}, "done": {gone}, "missing": {gone}, "other handler": {gone}},
		},
		{
			"bury pending",
			func(id store.DeliveryID) error { return b.s.BuryPending(b.ctx(), id, "by hand", b.now) },
			map[string][]error{"running": {runs}, "dead": {state}, "held": {state}, "done": {gone}, "missing": {gone}, "other handler": {gone}},
		},
		{
			"reschedule pending",
			func(id store.DeliveryID) error {
				return b.s.ReschedulePending(b.ctx(), id, b.now.Add(time.Hour), b.now)
			},
			map[string][]error{"running": {runs}, "dead": {state}, "held": {state}, "done": {gone}, "missing": {gone}, "other handler": {gone}},
		},
		{
			"skip",
			func(id store.DeliveryID) error { return b.s.Skip(b.ctx(), id, b.now) },
			map[string][]error{
				"pending": {state}, "running": {state, runs}, "dead": {state}, "done": {gone}, "missing": {gone}, "other handler": {gone},
			},
		},
		{
			"cancel event",
			func(id store.DeliveryID) error { return b.s.CancelEvent(b.ctx(), id.EventID, b.now) },
			map[string][]error{"running": {runs}, "dead": {state}, "held": {state}, "missing": {gone}},
		},
	} {
		for name, classes := range c.refused {
			err := c.op(ids[name])
			if err == nil {
				b.t.Errorf("%s of the %s one was done", c.name, name)
				continue
			}
			b.oneOf(err, classes...)
		}
		if after := b.snapshot(); after != before {
			b.t.Fatalf("a refused %s changed\n%s\nto\n%s", c.name, before, after)
		}
	}
	b.complete("w", running)
}

func requeueAllOrNothing(b *bed) {
	for _, id := range []string{"d0", "d1", "d2"} {
		b.dead(id, "", "h", false)
	}
	b.publish(b.event("pending", "", "h"))
	ids := []store.DeliveryID{{EventID: "d0", Handler: "h"}, {EventID: "d1", Handler: "h"}}
	b.wantError(b.s.Requeue(b.ctx(), append(slices.Clone(ids), store.DeliveryID{EventID: "missing", Handler: "h"}), b.now), store.ErrNotFound)
	b.wantError(b.s.Requeue(b.ctx(), append(slices.Clone(ids), store.DeliveryID{EventID: "pending", Handler: "h"}), b.now), store.ErrState)
	b.counts(1, 0, 3)
	if err := b.s.Requeue(b.ctx(), append(ids, ids[0]), b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	b.counts(3, 0, 1)
	b.wantEvents(b.claim("w", plenty, "h"), "d0", "d1", "pending")
}

func requeueResets(b *bed) {
	b.publish(b.event("e", "k", "h"))
	b.one("w", "h", "e")
	b.pass(term + time.Millisecond)
	b.settle("v", bury(b.one("v", "h", "e"), false))
	if d := b.delivery("e", "h"); d.Attempts != 2 || d.Lost != 1 {
		b.t.Fatalf("before: %+v", d)
	}
	b.pass(time.Hour)
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "e", Handler: "h"}}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	d := b.delivery("e", "h")
	if d.Status != store.StatusPending || d.Attempts != 0 || d.Lost != 0 || d.Error != "given up" || !d.DueAt.Equal(b.now) || !d.UpdatedAt.Equal(b.now) {
		b.t.Errorf("requeued: %+v", d)
	}
	c := b.one("w", "h", "e")
	if c.Attempt != 1 || c.Lost != 0 || c.Alone {
		b.t.Errorf("claimed: attempt %d, %d lost, alone %v", c.Attempt, c.Lost, c.Alone)
	}
	b.complete("w", c)
}

func requeueWhere(b *bed) {
	for i := range 8 {
		handler := []string{"h", "g"}[i%2]
		b.dead(numberedName("e", i), "", handler, false)
		b.pass(time.Minute)
	}
	b.publish(b.event("pending", "", "h"))
	want := func(f store.Filter, limit, n int) {
		b.t.Helper()
		got, err := b.s.RequeueWhere(b.ctx(), f, limit, b.now)
		if err != nil || got != n {
			b.t.Errorf("requeued %d where %+v, %v; want %d", got, f, err, n)
		}
	}
	want(store.Filter{Handler: "h"}, 2, 2)
	b.wantEvents(b.claim("w", plenty, "h"), "e-0", "e-2", "pending")
	want(store.Filter{Handler: "missing"}, 10, 0)
	want(store.Filter{EventID: "e-7", Status: store.StatusDead}, 10, 1)
	want(store.Filter{From: epoch().Add(3 * time.Minute), To: epoch().Add(5 * time.Minute)}, 10, 2)
	want(store.Filter{HoldsKey: true}, 10, 0)
	for _, status := range []store.Status{store.StatusPending, store.StatusRunning, store.StatusCompleted} {
		_, err := b.s.RequeueWhere(b.ctx(), store.Filter{Status: status}, 10, b.now)
		b.wantError(err, store.ErrInvalidArgument)
	}
	want(store.Filter{}, plenty, 3)
	want(store.Filter{}, 10, 0)
	// A held one is requeued in its place.
	b.dead("held", "k", "x", true)
	b.publish(b.event("behind", "k", "x"))
	want(store.Filter{HoldsKey: true, Key: "k"}, 10, 1)
	b.complete("w", b.one("w", "x", "held"))
	b.complete("w", b.one("w", "x", "behind"))
}

func buryPending(b *bed) {
	b.publish(b.numbered("e", 3, "k", "h")...)
	b.pass(time.Second)
	id := store.DeliveryID{EventID: "e-0", Handler: "h"}
	if err := b.s.BuryPending(b.ctx(), id, "by hand", b.now); err != nil {
		b.t.Fatalf("bury: %v", err)
	}
	d := b.delivery("e-0", "h")
	if d.Status != store.StatusDead || d.HoldsKey || d.Attempts != 0 || d.Error != "by hand" || !d.UpdatedAt.Equal(b.now) {
		b.t.Errorf("buried: %+v", d)
	}
	b.complete("w", b.one("w", "h", "e-1"))
	b.complete("w", b.one("w", "h", "e-2"))
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{id}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	b.complete("w", b.one("w", "h", "e-0"))
}

func reschedulePending(b *bed) {
	b.publish(b.numbered("e", 2, "k", "h")...)
	id := store.DeliveryID{EventID: "e-0", Handler: "h"}
	later := b.now.Add(time.Hour)
	if err := b.s.ReschedulePending(b.ctx(), id, later, b.now); err != nil {
		b.t.Fatalf("reschedule: %v", err)
	}
	if d := b.delivery("e-0", "h"); !d.DueAt.Equal(later) || d.Attempts != 0 || d.Status != store.StatusPending {
		b.t.Errorf("rescheduled: %+v", d)
	}
	b.none("w", "h")
	sooner := b.now.Add(time.Minute)
	if err := b.s.ReschedulePending(b.ctx(), id, sooner, b.now); err != nil {
		b.t.Fatalf("reschedule: %v", err)
	}
	b.none("w", "h")
	b.now = sooner
	c := b.one("w", "h", "e-0")
	if c.Attempt != 1 || !c.DueAt.Equal(sooner) {
		b.t.Errorf("attempt %d, due at %v", c.Attempt, c.DueAt)
	}
	b.complete("w", c)
	b.complete("w", b.one("w", "h", "e-1"))
}

func cancelEvent(b *bed) {
	delayed := b.event("delayed", "k", "h", "g")
	delayed.DueAt = b.now.Add(time.Hour)
	b.publish(delayed, b.event("behind", "k", "h"), b.event("released", "", "r"))
	b.none("w", "h")
	if err := b.s.CancelEvent(b.ctx(), "delayed", b.now); err != nil {
		b.t.Fatalf("cancel: %v", err)
	}
	event, deliveries, err := b.s.GetEvent(b.ctx(), "delayed")
	if err != nil || event.ID != "delayed" || len(deliveries) != 0 {
		b.t.Errorf("after the cancel: %+v with %d deliveries, %v", event, len(deliveries), err)
	}
	b.wantAppended(b.publish(delayed)[0], false, 0)
	b.complete("w", b.one("w", "h", "behind"))
	// One that was claimed before, even if nothing came of it.
	b.settle("w", release(b.one("w", "r", "released")))
	b.wantError(b.s.CancelEvent(b.ctx(), "released", b.now), store.ErrState)
	b.complete("w", b.one("w", "r", "released"))
	// One of several that runs.
	b.publish(b.event("shared", "", "h", "g"))
	c := b.one("w", "h", "shared")
	b.wantError(b.s.CancelEvent(b.ctx(), "shared", b.now), store.ErrRunning)
	b.settle("w", reschedule(c, b.now))
	b.wantError(b.s.CancelEvent(b.ctx(), "shared", b.now), store.ErrState)
	other := b.one("w", "g", "shared")
	b.wantError(b.s.CancelEvent(b.ctx(), "shared", b.now), store.ErrRunning) // Trying again may help.
	b.settle("w", release(other))
	// One of several that has completed.
	b.publish(b.event("half", "", "x", "y"))
	b.complete("w", b.one("w", "x", "half"))
	b.wantError(b.s.CancelEvent(b.ctx(), "half", b.now), store.ErrState)
	if n, err := b.s.DropPending(b.ctx(), "y", 1, b.now); n != 1 || err != nil {
		b.t.Fatalf("drop: %d, %v", n, err)
	}
	b.counts(2, 0, 0)
	b.pass(2 * time.Hour)
	b.wantEvents(b.claim("w", plenty, "h", "g"), "shared", "shared")
}

func dropPending(b *bed) {
	b.publish(b.numbered("e", 6, "", "old", "h")...)
	b.publish(b.numbered("k", 5, "k", "old")...)
	b.publish(b.event("mixed", "k", "h"))
	running := b.find(b.claim("w", plenty, "old"), "k-0")
	if n, err := b.s.DropPending(b.ctx(), "old", 1, b.now); err != nil || n != 1 {
		b.t.Fatalf("drop: %d, %v; want 1", n, err)
	}
	dropped := 1
	for {
		n, err := b.s.DropPending(b.ctx(), "old", 2, b.now)
		if err != nil || n > 2 {
			b.t.Fatalf("drop: %d, %v", n, err)
		}
		if n == 0 {
			break
		}
		dropped += n
	}
	// What runs is left alone: the 6 unkeyed ones and the head of the key.
	if dropped != 4 {
		b.t.Errorf("dropped %d, want the 4 that wait behind the key", dropped)
	}
	if got := b.list(store.Filter{Handler: "old"}); len(got) != 7 {
		b.t.Errorf("%d deliveries are left, want 7 running ones", len(got))
	}
	b.settle("w", reschedule(running, b.now))
	if n, err := b.s.DropPending(b.ctx(), "old", 10, b.now); n != 1 || err != nil {
		b.t.Errorf("drop of a retried one: %d, %v", n, err)
	}
	if got := b.claim("w", plenty, "h"); len(got) != 7 {
		b.t.Errorf("another handler claims %v, want its 7", names(got))
	}
}

// operatorsBesideWorkers: operators change what they can while workers run, and
// everything ends somewhere.
func operatorsBesideWorkers(b *bed) {
	const n = 120
	other := b.open()
	var events []store.NewEvent
	for i := range n {
		events = append(events, b.event(numberedName("e", i), []string{"", "a", "b"}[i%3], "h"))
	}
	b.publish(events...)
	now := b.now
	errs := make(chan error, 1)
	go func() {
		for i := range n {
			id := store.DeliveryID{EventID: numberedName("e", i), Handler: "h"}
			for _, err := range []error{
				other.ReschedulePending(b.ctx(), id, now, now),
				other.BuryPending(b.ctx(), id, "by hand", now),
				other.Requeue(b.ctx(), []store.DeliveryID{id}, now),
				other.CancelEvent(b.ctx(), id.EventID, now),
			} {
				if err != nil && !isOneOf(err, store.ErrState, store.ErrRunning, store.ErrNotFound) {
					errs <- err
					return
				}
			}
		}
		errs <- nil
	}()
	done := false
	for turn := 0; ; turn++ {
		got := b.claim("w", 7, "h")
		for i, c := range got {
			switch (turn + i) % 5 {
			case 0:
				b.settle("w", bury(c, false))
			case 1:
				b.settle("w", reschedule(c, now))
			default:
				b.complete("w", c)
			}
		}
		if len(got) == 0 && done {
			break
		}
		select {
		case err := <-errs:
			if err != nil {
				b.t.Fatalf("operator: %v", err)
			}
			done = true
		default:
		}
	}
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || stats.Pending != 0 || stats.Running != 0 {
		b.t.Errorf("left: %+v, %v", stats, err)
	}
}
