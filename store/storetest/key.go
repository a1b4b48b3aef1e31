package storetest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

func laneOf(text string) uint8 { return lane.Of(text, text) }

func keyCases() []testCase {
	return []testCase{
		{name: "B13 F11 a dead delivery lets its followers pass by default", run: deadLetsPass},
		{name: "B13 Z13 a held key blocks until it is skipped", run: heldUntilSkipped},
		{name: "B13 F11 Z13 a held delivery that is requeued runs first", run: heldRequeued},
		{name: "B13 Z13 held keys are listed and counted", run: heldListed},
		{name: "B13 Hold without a key holds nothing", run: holdWithoutKey},
		{name: "B13 F11 requeued deliveries of a key run in order", run: requeuedInOrder},
		{name: "B13 F11 a requeued one waits for a running later one", run: requeuedWaits},
		{name: "S10 F11 parked followers come back through every transition", run: parkedComeBack},
		{name: "S10 F11 many followers run in order behind parking", run: parkedInOrder},
		{name: "S10 parked deliveries stay pending for operators", run: parkedArePending},
	}
}

func deadLetsPass(b *bed) {
	b.publish(b.numbered("e", 3, "k", "h")...)
	b.settle("w", bury(b.one("w", "h", "e-0"), false))
	d := b.delivery("e-0", "h")
	if d.Status != store.StatusDead || d.HoldsKey || d.Attempts != 1 || d.Error != "given up" {
		b.t.Errorf("the dead delivery is %+v", d)
	}
	b.complete("w", b.one("w", "h", "e-1"))
	b.complete("w", b.one("w", "h", "e-2"))
	b.counts(0, 0, 1)
}

func heldUntilSkipped(b *bed) {
	b.publish(append(b.numbered("e", 3, "k", "h"), b.event("free", "other", "h"))...)
	got := b.claim("w", plenty, "h")
	b.settle("w", bury(b.find(got, "e-0"), true), completion(b.find(got, "free")))
	b.none("w", "h")
	// It survives takeovers, owners and instances.
	b.pass(2 * term)
	other := b.open()
	if got := b.claimOn(other, request("other", b.now, plenty, "h")); len(got) != 0 {
		b.t.Fatalf("%v passed a held key", names(got))
	}
	if err := other.Skip(b.ctx(), store.DeliveryID{EventID: "e-0", Handler: "h"}, b.now); err != nil {
		b.t.Fatalf("skip: %v", err)
	}
	d := b.delivery("e-0", "h")
	if d.Status != store.StatusDead || d.HoldsKey {
		b.t.Errorf("after the skip: %+v", d)
	}
	b.complete("w", b.one("w", "h", "e-1"))
	b.complete("w", b.one("w", "h", "e-2"))
	b.counts(0, 0, 1)
}

func heldRequeued(b *bed) {
	b.publish(b.numbered("e", 3, "k", "h")...)
	first := b.one("w", "h", "e-0")
	b.settle("w", bury(first, true))
	b.pass(time.Minute)
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "e-0", Handler: "h"}}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	d := b.delivery("e-0", "h")
	if d.Status != store.StatusPending || d.HoldsKey || d.Attempts != 0 || d.Lost != 0 || !d.DueAt.Equal(b.now) || d.Error != "given up" {
		b.t.Errorf("requeued: %+v", d)
	}
	again := b.one("w", "h", "e-0")
	if again.Attempt != 1 || again.Event.Sequence != first.Event.Sequence {
		b.t.Errorf("attempt %d of sequence %d, want 1 of %d", again.Attempt, again.Event.Sequence, first.Event.Sequence)
	}
	b.none("w", "h")
	b.complete("w", again)
	b.complete("w", b.one("w", "h", "e-1"))
	b.complete("w", b.one("w", "h", "e-2"))
}

func heldListed(b *bed) {
	b.dead("held", "k", "h", true)
	b.dead("plain", "l", "h", false)
	got := b.list(store.Filter{HoldsKey: true})
	if len(got) != 1 || got[0].ID.EventID != "held" || !got[0].HoldsKey || got[0].Status != store.StatusDead {
		b.t.Errorf("held deliveries: %+v", got)
	}
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || stats.Held != 1 || stats.Dead != 2 {
		b.t.Errorf("%d held of %d dead, %v; want 1 of 2", stats.Held, stats.Dead, err)
	}
}

func holdWithoutKey(b *bed) {
	b.dead("e", "", "h", true)
	if d := b.delivery("e", "h"); d.HoldsKey {
		b.t.Error("a delivery without a key holds one")
	}
	b.wantError(b.s.Skip(b.ctx(), store.DeliveryID{EventID: "e", Handler: "h"}, b.now), store.ErrState)
}

func requeuedInOrder(b *bed) {
	b.publish(b.numbered("e", 10, "k", "h")...)
	var all []store.DeliveryID
	for i := range 9 {
		c := b.one("w", "h", numberedName("e", i))
		if i%3 == 1 {
			b.settle("w", bury(c, false))
			all = append(all, store.DeliveryID{EventID: c.Event.ID, Handler: "h"})
		} else {
			b.complete("w", c)
		}
	}
	running := b.one("w", "h", "e-9")
	slices.Reverse(all)
	if err := b.s.Requeue(b.ctx(), all, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	b.none("w", "h")
	b.none("other", "h")
	b.complete("w", running)
	for _, i := range []int{1, 4, 7} {
		c := b.one("w", "h", numberedName("e", i))
		b.none("w", "h")
		b.complete("w", c)
	}
	b.counts(0, 0, 0)
}

// requeuedWaits: a requeued delivery never runs beside a later one of its key
// that runs already, and stops the ones that don't run yet.
func requeuedWaits(b *bed) {
	b.publish(b.numbered("e", 3, "k", "h")...)
	b.settle("w", bury(b.one("w", "h", "e-0"), false))
	running := b.one("w", "h", "e-1")
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "e-0", Handler: "h"}}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	b.none("w", "h")
	if got := b.claimOn(b.open(), request("other", b.now, plenty, "h")); len(got) != 0 {
		b.t.Fatalf("%v runs beside e-1", names(got))
	}
	b.settle("w", reschedule(running, b.now))
	b.complete("w", b.one("w", "h", "e-0"))
	b.complete("w", b.one("w", "h", "e-1"))
	b.complete("w", b.one("w", "h", "e-2"))
}

// parkedComeBack parks the followers of a head, and ends the head in every way
// that lets the next one start.
func parkedComeBack(b *bed) {
	ends := []func(c store.Claimed){
		func(c store.Claimed) { b.complete("w", c) },
		func(c store.Claimed) { b.settle("w", bury(c, false)) },
		func(c store.Claimed) {
			b.settle("w", bury(c, true))
			b.none("w", "h")
			if err := b.s.Skip(b.ctx(), store.DeliveryID{EventID: c.Event.ID, Handler: "h"}, b.now); err != nil {
				b.t.Fatalf("skip: %v", err)
			}
		},
		func(c store.Claimed) {
			b.settle("w", release(c))
			d := store.DeliveryID{EventID: c.Event.ID, Handler: "h"}
			if err := b.s.BuryPending(b.ctx(), d, "by hand", b.now); err != nil {
				b.t.Fatalf("bury pending: %v", err)
			}
		},
		func(c store.Claimed) {
			later := release(c)
			later.DueAt = b.now.Add(time.Hour)
			b.settle("w", later)
			b.none("w", "h")
			if n, err := b.s.DropPending(b.ctx(), "h", 1, b.now); n != 1 || err != nil {
				b.t.Fatalf("drop pending: %d, %v", n, err)
			}
		},
	}
	const n = 120
	b.publish(b.numbered("e", n, "k", "h")...)
	dropped := 0
	for i := range n {
		got := b.claim("w", plenty, "h")
		if len(got) != 1 {
			b.t.Fatalf("step %d: claimed %v, want one of the key", i, names(got))
		}
		b.none("w", "h")
		end := i % (len(ends) + 1)
		if end == len(ends) {
			// Cancel the next one, which waits and was never claimed.
			waiting := b.list(store.Filter{Status: store.StatusPending, Key: "k"})
			next := slices.MinFunc(waiting, func(a, b store.Delivery) int { return int(a.Event.Sequence - b.Event.Sequence) })
			if err := b.s.CancelEvent(b.ctx(), next.ID.EventID, b.now); err != nil {
				b.t.Fatalf("cancel: %v", err)
			}
			dropped++
			b.complete("w", got...)
		} else {
			ends[end](got[0])
		}
		if stats, err := b.s.Stats(b.ctx(), b.now); err != nil || stats.Pending == 0 {
			break
		}
	}
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || stats.Pending != 0 || stats.Running != 0 {
		b.t.Errorf("%d pending and %d running are left, %v", stats.Pending, stats.Running, err)
	}
	if dropped == 0 {
		b.t.Error("no event was cancelled")
	}
}

func parkedInOrder(b *bed) {
	const n = 400
	random := rand.New(rand.NewPCG(4, 11))
	b.publish(b.numbered("e", n, "k", "h")...)
	for i := range n {
		c := b.one("w", "h", numberedName("e", i))
		switch random.IntN(5) {
		case 0:
			b.settle("w", reschedule(c, b.now.Add(time.Second)))
			b.none("w", "h")
			b.pass(time.Second)
			c = b.one("w", "h", numberedName("e", i))
		case 1:
			b.settle("w", release(c))
			b.relinquish("w")
			c = b.one("w", "h", numberedName("e", i))
		case 2:
			b.pass(term + time.Millisecond)
			got := b.claimOn(b.s, request("heir", b.now, plenty, "h"))
			b.wantEvents(got, numberedName("e", i))
			b.settle("heir", release(got[0]))
			b.relinquish("heir")
			c = b.one("w", "h", numberedName("e", i))
		default:
		}
		b.complete("w", c)
	}
	b.counts(0, 0, 0)
}

func parkedArePending(b *bed) {
	const n = 100
	b.publish(b.numbered("e", n, "k", "h")...)
	head := b.one("w", "h", "e-0")
	for range 3 {
		b.none("w", "h")
	}
	b.counts(n-1, 1, 0)
	if got := b.list(store.Filter{Status: store.StatusPending, Key: "k"}); len(got) != n-1 {
		b.t.Errorf("%d pending deliveries are listed, want %d", len(got), n-1)
	}
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || !stats.OldestDueAt.Equal(b.now) {
		b.t.Errorf("the oldest due time is %v, %v; want %v", stats.OldestDueAt, err, b.now)
	}
	d := b.delivery("e-50", "h")
	if d.Status != store.StatusPending || !d.DueAt.Equal(b.now) || d.Attempts != 0 || !d.UpdatedAt.Equal(b.now) {
		b.t.Errorf("a parked delivery is %+v", d)
	}
	// An operator can change them where they are.
	id := func(i int) store.DeliveryID { return store.DeliveryID{EventID: numberedName("e", i), Handler: "h"} }
	if err := b.s.BuryPending(b.ctx(), id(1), "by hand", b.now); err != nil {
		b.t.Fatalf("bury a parked delivery: %v", err)
	}
	if err := b.s.ReschedulePending(b.ctx(), id(2), b.now.Add(time.Minute), b.now); err != nil {
		b.t.Fatalf("reschedule a parked delivery: %v", err)
	}
	if err := b.s.CancelEvent(b.ctx(), "e-3", b.now); err != nil {
		b.t.Fatalf("cancel a parked delivery: %v", err)
	}
	b.complete("w", head)
	b.none("w", "h")
	b.pass(time.Minute)
	for _, i := range []int{2, 4, 5} {
		b.complete("w", b.one("w", "h", numberedName("e", i)))
	}
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{id(1)}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	b.complete("w", b.one("w", "h", "e-1"))
	b.complete("w", b.one("w", "h", "e-6"))
}
