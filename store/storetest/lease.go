package storetest

import (
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func leaseCases() []testCase {
	return []testCase{
		{name: "S7 F16 an extended lease is not taken over", run: extendedLease},
		{name: "S7 an expired lease that nobody took over is honoured", run: expiredHonoured},
		{name: "S7 a lease is never shortened", run: neverShortened},
		{name: "S7 extend reports each lease", run: extendEach},
		{name: "S7 an owner without leases keeps its lanes", run: extendWithoutLeases},
		{name: "S7 F16 a lease that was extended too late", run: extendedTooLate},
		{name: "S7 a lease ends at its time, not before", run: leaseEnd},
		{name: "S7 B10 F16 a claim holds for the lease that was asked for", run: claimHolds},
	}
}

// taken reports whether another instance gets the running delivery of h.
func (b *bed) taken(owner string) bool {
	b.t.Helper()
	return len(b.claimOn(b.open(), request(owner, b.now, plenty, "h"))) > 0
}

// claimHolds claims again and again at moments at which a store may find that the
// lease which the owner has is long enough.
func claimHolds(b *bed) {
	b.publish(b.event("first", "", "h"))
	b.complete("w", b.one("w", "h", "first"))
	for i := range 10 {
		b.pass(term / 8)
		b.publish(b.event(numberedName("e", i), "", "h"))
		if got := b.claim("w", plenty, "h"); len(got) != 1 {
			b.t.Fatalf("claimed %v", got)
		}
		late := request("thief", b.now.Add(term*9/10), plenty, "h")
		if got := b.claimOn(b.open(), late); len(got) != 0 {
			b.t.Fatalf("claim %d was taken over after nine tenths of its lease", i)
		}
	}
}

func extendedLease(b *bed) {
	b.publish(b.event("e", "k", "h"))
	c := b.one("w", "h", "e")
	for i := range 6 {
		b.pass(2 * term / 3)
		held, err := b.s.Extend(b.ctx(), "w", []store.Lease{c.Lease}, b.now, term)
		if err != nil || len(held) != 1 || !held[0] {
			b.t.Fatalf("extension %d: %v, %v", i, held, err)
		}
		if b.taken(numberedName("thief", i)) {
			b.t.Fatalf("taken over after extension %d", i)
		}
	}
	b.complete("w", c)
}

func expiredHonoured(b *bed) {
	b.publish(b.numbered("e", 4, "", "h")...)
	got := b.claim("w", plenty, "h")
	b.pass(100 * term)
	held, err := b.s.Extend(b.ctx(), "w", []store.Lease{got[0].Lease}, b.now, term)
	if err != nil || !held[0] {
		b.t.Fatalf("extend: %v, %v", held, err)
	}
	b.pass(100 * term)
	b.settle("w", completion(got[0]), reschedule(got[1], b.now), bury(got[2], false), release(got[3]))
	b.counts(2, 0, 1)
}

func neverShortened(b *bed) {
	b.publish(b.event("e", "k", "h"))
	r := request("w", b.now, plenty, "h")
	r.Lease = 10 * term
	c := b.claimOn(b.s, r)[0]
	b.pass(time.Second)
	b.publish(b.event("e2", "k", "h"), b.event("f", "", "g"))
	short := request("w", b.now, plenty, "g")
	short.Lease = time.Second
	b.complete("w", b.claimOn(b.s, short)...)
	if held, err := b.s.Extend(b.ctx(), "w", []store.Lease{c.Lease}, b.now, time.Second); err != nil || !held[0] {
		b.t.Fatalf("extend: %v, %v", held, err)
	}
	b.pass(10*term - 2*time.Second)
	if b.taken("thief") {
		b.t.Fatal("a shorter claim or extension shortened the lease")
	}
	b.complete("w", c)
	b.complete("w", b.one("w", "h", "e2"))
}

func extendEach(b *bed) {
	b.publish(b.numbered("e", 4, "", "h")...)
	got := b.claim("w", plenty, "h")
	b.complete("w", got[0])
	b.settle("w", reschedule(got[2], b.now.Add(time.Hour)))
	var leases []store.Lease
	for _, c := range got {
		leases = append(leases, c.Lease)
	}
	held, err := b.s.Extend(b.ctx(), "w", leases, b.now, term)
	if err != nil || len(held) != 4 {
		b.t.Fatalf("extend: %v, %v", held, err)
	}
	for i, want := range []bool{false, true, false, true} {
		if held[i] != want {
			b.t.Errorf("lease %d holds: %v, want %v", i, held[i], want)
		}
	}
	held, err = b.s.Extend(b.ctx(), "nobody", leases, b.now, term)
	if err != nil {
		b.t.Fatalf("extend for an unknown owner: %v", err)
	}
	for i := range held {
		if held[i] {
			b.t.Errorf("lease %d holds for an unknown owner", i)
		}
	}
	b.complete("w", got[1], got[3])
}

func extendWithoutLeases(b *bed) {
	b.publish(b.event("e", "k", "h"))
	c := b.one("w", "h", "e")
	if held, err := b.s.Extend(b.ctx(), "w", nil, b.now, 3*term); err != nil || len(held) != 0 {
		b.t.Fatalf("extend without leases: %v, %v", held, err)
	}
	if held, err := b.s.Extend(b.ctx(), "unknown", nil, b.now, term); err != nil || len(held) != 0 {
		b.t.Fatalf("extend of an unknown owner: %v, %v", held, err)
	}
	b.complete("w", c)
	b.publish(b.event("f", "k", "h"))
	b.complete("w", b.one("w", "h", "f"))
}

// extendedTooLate: an extension after the takeover reports the loss, and gives
// the lost worker nothing back.
func extendedTooLate(b *bed) {
	b.publish(b.numbered("e", 3, "", "h")...)
	got := b.claim("w", plenty, "h")
	b.pass(term + time.Millisecond)
	second := b.open()
	heirs := b.claimOn(second, request("heir", b.now, plenty, "h"))
	var leases []store.Lease
	for _, c := range got {
		leases = append(leases, c.Lease)
	}
	held, err := b.s.Extend(b.ctx(), "w", leases, b.now, 100*term)
	if err != nil {
		b.t.Fatalf("extend: %v", err)
	}
	for i := range held {
		if held[i] {
			b.t.Errorf("lease %d holds after a takeover", i)
		}
	}
	for _, c := range heirs {
		if ok := b.settleOn(second, "heir", completion(c)); !ok[0] {
			b.t.Error("the heir's completion was refused")
		}
	}
	b.lost(completion(got[0]))
	// It can start over.
	b.publish(b.event("new", "", "g"))
	b.complete("w", b.one("w", "g", "new"))
	b.counts(0, 0, 0)
}

func leaseEnd(b *bed) {
	b.publish(b.event("e", "k", "h"))
	b.one("w", "h", "e")
	b.pass(term - time.Millisecond)
	if b.taken("early") {
		b.t.Fatal("taken over before the lease ended")
	}
	b.pass(2 * time.Millisecond)
	if !b.taken("late") {
		b.t.Fatal("not taken over after the lease ended")
	}
}
