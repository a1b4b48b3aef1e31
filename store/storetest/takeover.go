package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func takeoverCases() []testCase {
	return []testCase{
		{name: "S8 a takeover charges one attempt to all that ran", run: takeoverCharges},
		{name: "S8 a takeover charges nothing to what did not run", run: takeoverChargesOnlyRunning},
		{name: "S8 many take over at once and charge once", run: takeoverByMany},
		{name: "S8 a claim for other handlers takes over, too", run: takeoverByOtherHandlers},
		{name: "S8 Z10 lost attempts are counted apart", run: lostCountedApart},
		{name: "S8 I6 nothing is stuck after a takeover", run: takeoverFreesKeys},
		{name: "F22 a restart under the same name neither adopts nor waits beyond the lease", run: sameNameRestart},
		{name: "B11 F22 a poison message that kills its workers can be buried", run: poisonMessage},
		{name: "Z10 a delivery that is marked to run alone", run: runAlone},
		{name: "F16 effects of a late transactional handler", needs: needsEffects, run: lateTransactionalHandler},
	}
}

func takeoverCharges(b *bed) {
	b.publish(append(b.numbered("e", 10, "", "h"), append(b.numbered("k", 3, "k", "h"), b.event("g", "", "g"))...)...)
	got := b.claim("w", plenty, "h", "g")
	b.wantEvents(got, append([]string{"k-0", "g"}, idsOf("e", 10)...)...)
	b.pass(term + time.Millisecond)
	heirs := b.claimOn(b.open(), request("heir", b.now, plenty, "h", "g"))
	if !slices.Equal(eventIDs(heirs), eventIDs(got)) {
		b.t.Fatalf("taken over %v, want %v", eventIDs(heirs), eventIDs(got))
	}
	for _, c := range heirs {
		if c.Attempt != 2 || c.Lost != 1 {
			b.t.Errorf("%s: attempt %d with %d lost, want 2 and 1", c.Event.ID, c.Attempt, c.Lost)
		}
		old, current := b.find(got, c.Event.ID).Lease.Token, c.Lease.Token
		if current.Claims != old.Claims+1 || current.Epoch <= old.Epoch {
			b.t.Errorf("%s: token %v after %v, want the next generation in a later epoch", c.Event.ID, current, old)
		}
	}
	for _, d := range b.list(store.Filter{Status: store.StatusRunning}) {
		if d.Attempts != 1 || d.Lost != 1 || d.Owner != "heir" {
			b.t.Errorf("%s: %d attempts, %d lost, owner %q", d.ID.EventID, d.Attempts, d.Lost, d.Owner)
		}
	}
}

func idsOf(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = numberedName(prefix, i)
	}
	return ids
}

func takeoverChargesOnlyRunning(b *bed) {
	b.publish(b.numbered("e", 6, "", "h")...)
	b.publish(b.numbered("k", 4, "k", "h")...)
	got := b.claim("w", plenty, "h")
	b.settle("w", completion(b.find(got, "e-0")), release(b.find(got, "e-1")),
		reschedule(b.find(got, "e-2"), b.now), bury(b.find(got, "e-3"), false))
	b.pass(term + time.Millisecond)
	want := map[string][2]int{"e-1": {1, 0}, "e-2": {2, 0}, "e-4": {2, 1}, "e-5": {2, 1}, "k-0": {2, 1}}
	heirs := b.claim("heir", plenty, "h")
	if len(heirs) != len(want) {
		b.t.Fatalf("claimed %v", names(heirs))
	}
	for _, c := range heirs {
		if w := want[c.Event.ID]; c.Attempt != w[0] || c.Lost != w[1] {
			b.t.Errorf("%s: attempt %d with %d lost, want %v", c.Event.ID, c.Attempt, c.Lost, w)
		}
	}
	if d := b.delivery("k-1", "h"); d.Attempts != 0 || d.Lost != 0 {
		b.t.Errorf("a delivery that waited was charged: %+v", d)
	}
	if d := b.delivery("e-3", "h"); d.Attempts != 1 || d.Status != store.StatusDead {
		b.t.Errorf("a dead delivery was charged: %+v", d)
	}
}

func takeoverByMany(b *bed) {
	const heirs = 6
	stores := make([]store.Store, heirs)
	for i := range stores {
		stores[i] = b.open()
	}
	for round := range 4 {
		b.publish(append(b.numbered(numberedName("e", round), 8, "", "h"), b.event(numberedName("k", round), "k", "h"))...)
		dead := b.claimOn(b.open(), request("dead", b.now, plenty, "h"))
		if len(dead) != 9 {
			b.t.Fatalf("round %d: claimed %v", round, names(dead))
		}
		b.pass(term + time.Millisecond)
		claimed := make([][]store.Claimed, heirs)
		errs := make([]error, heirs)
		var group sync.WaitGroup
		for i, s := range stores {
			group.Go(func() {
				result, err := s.Claim(b.ctx(), request(numberedName("heir", i), b.now, plenty, "h"))
				claimed[i], errs[i] = result.Deliveries, err
			})
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			b.t.Fatalf("round %d: %v", round, err)
		}
		total := 0
		for i, list := range claimed {
			for _, c := range list {
				total++
				if c.Attempt != 2 || c.Lost != 1 {
					b.t.Errorf("round %d: %s: attempt %d with %d lost, want 2 and 1", round, c.Event.ID, c.Attempt, c.Lost)
				}
				if ok := b.settleOn(stores[i], numberedName("heir", i), completion(c)); !ok[0] {
					b.t.Errorf("round %d: completion of %s was refused", round, c.Event.ID)
				}
			}
			if err := stores[i].Relinquish(b.ctx(), numberedName("heir", i), b.now); err != nil {
				b.t.Fatalf("relinquish: %v", err)
			}
		}
		if total != 9 {
			// One that looked while another one took over comes later.
			for _, c := range b.claim("late", plenty, "h") {
				total++
				if c.Attempt != 2 || c.Lost != 1 {
					b.t.Errorf("round %d: %s: attempt %d with %d lost, want 2 and 1", round, c.Event.ID, c.Attempt, c.Lost)
				}
				b.complete("late", c)
			}
			b.relinquish("late")
		}
		if total != 9 {
			b.t.Fatalf("round %d: %d of 9 deliveries were taken over", round, total)
		}
		b.counts(0, 0, 0)
	}
}

func takeoverByOtherHandlers(b *bed) {
	b.publish(b.event("e", "k", "h"))
	c := b.one("w", "h", "e")
	b.pass(term + time.Millisecond)
	b.none("other", "g")
	d := b.delivery("e", "h")
	if d.Status != store.StatusPending || d.Attempts != 1 || d.Lost != 1 || d.Owner != "" || !d.UpdatedAt.Equal(b.now) {
		b.t.Errorf("after the takeover: %+v", d)
	}
	b.lost(completion(c))
}

func lostCountedApart(b *bed) {
	b.publish(b.event("e", "k", "h"))
	attempts, lost := 0, 0
	for turn := range 8 {
		owner := numberedName("w", turn)
		c := b.one(owner, "h", "e")
		if c.Attempt != attempts+1 || c.Lost != lost {
			b.t.Fatalf("turn %d: attempt %d with %d lost, want %d and %d", turn, c.Attempt, c.Lost, attempts+1, lost)
		}
		switch turn % 4 {
		case 0, 3: // Its worker dies.
			b.pass(term + time.Millisecond)
			attempts, lost = attempts+1, lost+1
		case 1:
			b.settle(owner, reschedule(c, b.now))
			b.relinquish(owner)
			attempts++
		default:
			b.settle(owner, release(c))
			b.relinquish(owner)
		}
	}
	b.settle("last", bury(b.one("last", "h", "e"), false))
	if d := b.delivery("e", "h"); d.Attempts != attempts+1 || d.Lost != lost {
		b.t.Errorf("%d attempts with %d lost, want %d and %d", d.Attempts, d.Lost, attempts+1, lost)
	}
}

func takeoverFreesKeys(b *bed) {
	for k := range 10 {
		b.publish(b.numbered(numberedName("e", k), 40, numberedName("k", k), "h")...)
	}
	for turn := range 40 {
		owner := numberedName("w", turn)
		got := b.claim(owner, plenty, "h")
		if len(got) != 10 {
			b.t.Fatalf("turn %d: claimed %d of 10 keys", turn, len(got))
		}
		b.none(owner, "h")
		if turn%3 == 1 {
			b.pass(term + time.Millisecond)
			got = b.claim(owner+"-heir", plenty, "h")
			if len(got) != 10 {
				b.t.Fatalf("turn %d: taken over %d of 10 keys", turn, len(got))
			}
			owner += "-heir"
		}
		b.complete(owner, got...)
		b.relinquish(owner)
	}
	b.counts(0, 0, 0)
}

func sameNameRestart(b *bed) {
	b.publish(b.numbered("e", 3, "", "h")...)
	b.publish(b.numbered("k", 2, "k", "h")...)
	got := b.claim("w", plenty, "h")
	restarted := b.open()
	if adopted := b.claimOn(restarted, request("w", b.now, plenty, "h")); len(adopted) != 0 {
		b.t.Fatalf("the restarted process adopted %v", names(adopted))
	}
	b.pass(term / 2)
	// What the new one runs keeps the old one's lease as it is.
	if adopted := b.claimOn(restarted, request("w", b.now, plenty, "h")); len(adopted) != 0 {
		b.t.Fatalf("the restarted process adopted %v", names(adopted))
	}
	b.pass(term/2 + time.Millisecond)
	heirs := b.claimOn(restarted, request("w", b.now, plenty, "h"))
	if !slices.Equal(eventIDs(heirs), eventIDs(got)) {
		b.t.Fatalf("after the lease the restarted process got %v, want %v", eventIDs(heirs), eventIDs(got))
	}
	b.lost(completion(got[0]))
	for _, c := range heirs {
		if ok := b.settleOn(restarted, "w", completion(c)); !ok[0] || c.Attempt != 2 {
			b.t.Errorf("%s: completed %v in attempt %d", c.Event.ID, ok[0], c.Attempt)
		}
	}
}

func poisonMessage(b *bed) {
	b.publish(b.event("poison", "k", "h"), b.event("next", "k", "h"))
	for attempt := 1; ; attempt++ {
		owner := numberedName("w", attempt)
		c := b.one(owner, "h", "poison")
		if c.Attempt != attempt || c.Lost != attempt-1 {
			b.t.Fatalf("attempt %d with %d lost, want %d and %d", c.Attempt, c.Lost, attempt, attempt-1)
		}
		if c.Attempt > 5 {
			b.settle(owner, bury(c, false))
			b.relinquish(owner)
			break
		}
		b.pass(term + time.Millisecond)
	}
	b.complete("last", b.one("last", "h", "next"))
}

func runAlone(b *bed) {
	b.publish(b.event("e", "k", "h"), b.event("f", "", "h"))
	got := b.claim("w", plenty, "h")
	if got[0].Alone || got[1].Alone {
		b.t.Error("Alone came from nowhere")
	}
	alone := release(b.find(got, "e"))
	alone.Alone = true
	b.settle("w", alone, release(b.find(got, "f")))
	b.relinquish("w")
	v := b.open()
	got = b.claimOn(v, request("v", b.now, plenty, "h"))
	if c := b.find(got, "e"); !c.Alone || c.Attempt != 1 {
		b.t.Errorf("e runs alone: %v, in attempt %d", c.Alone, c.Attempt)
	}
	if b.find(got, "f").Alone {
		b.t.Error("f was never asked to run alone")
	}
	// It stays through what charges nobody, and through a takeover: it has not
	// run alone yet, or its worker died of it.
	if ok := b.settleOn(v, "v", release(b.find(got, "e")), release(b.find(got, "f"))); !ok[0] || !ok[1] {
		b.t.Fatal("the release was refused")
	}
	if err := v.Relinquish(b.ctx(), "v", b.now); err != nil {
		b.t.Fatalf("relinquish: %v", err)
	}
	got = b.claim("w", plenty, "h")
	if !b.find(got, "e").Alone {
		b.t.Error("a release took the mark away")
	}
	b.pass(term + time.Millisecond)
	got = b.claim("heir", plenty, "h")
	if !b.find(got, "e").Alone {
		b.t.Error("a takeover took the mark away")
	}
	// An attempt that ended takes it away.
	b.settle("heir", reschedule(b.find(got, "e"), b.now), completion(b.find(got, "f")))
	if c := b.one("heir", "h", "e"); c.Alone {
		b.t.Error("the mark outlived the attempt")
	}
}

// lateTransactionalHandler: a handler that outlives its lease leaves nothing,
// and its heir's effect is the only one.
func lateTransactionalHandler(b *bed) {
	second := b.open()
	for i := range 6 {
		id := numberedName("e", i)
		b.publish(b.event(id, "k", "h"))
		c := b.one("w", "h", id)
		b.pass(term + time.Millisecond)
		heirs := b.claimOn(second, request("heir", b.now, plenty, "h"))
		b.wantEvents(heirs, id)
		if i%2 == 0 {
			b.wantError(b.runInTx(b.s, "w", c), store.ErrLeaseLost)
		}
		if err := b.runInTx(second, "heir", heirs[0]); err != nil {
			b.t.Fatalf("the heir: %v", err)
		}
		b.wantError(b.runInTx(b.s, "w", c), store.ErrLeaseLost)
		if err := second.Relinquish(b.ctx(), "heir", b.now); err != nil {
			b.t.Fatalf("relinquish: %v", err)
		}
	}
	if got := b.db.Effects(b.t, b.s); !slices.Equal(got, idsOf("e", 6)) {
		b.t.Errorf("the effects are %v, want each of 6 once", got)
	}
}
