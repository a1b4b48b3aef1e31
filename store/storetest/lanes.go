package storetest

import (
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

func laneCases() []testCase {
	return []testCase{
		{name: "S5 a token names the lane of the key or the event", run: tokenNamesLane},
		{name: "S5 a claim takes few lanes and leaves the others", run: fewLanes},
		{name: "S5 a second owner gets work of lanes that the first does not hold", run: secondOwnerGetsWork},
		{name: "S5 a claim that brings nothing holds nothing", run: emptyClaimHoldsNothing},
		{name: "S5 after relinquish others get the lanes at once", run: lanesAfterRelinquish},
		{name: "S5 F06 relinquish releases without a charge", run: relinquishReleases},
		{name: "S5 F06 relinquish of an unknown owner, twice, and by many", run: relinquishUnknown},
		{name: "S5 the oldest due work comes first", run: oldestFirst},
		{name: "S5 a claim with a large limit gets all work", run: allWork},
		{name: "Z9 handlers of different processes never wait for each other", run: differentHandlers},
		{name: "B22 Z9 every handler with due work has a share", run: shares},
		{name: "B22 Z9 more handlers than the limit are served in turn", run: turns},
		{name: "B22 a handler's limit", run: handlerLimits},
		{name: "B14 More and NextDue tell when to claim again", run: moreAndNextDue},
		{name: "B14 a publish on another instance is seen by the next claim", run: seenByNextClaim},
	}
}

func tokenNamesLane(b *bed) {
	b.publish(b.event("e1", "", "h"), b.event("e2", "key", "h"), b.event("e3", "", "h"), b.event("e4", "other", "h"))
	got := b.claim("w", plenty, "h")
	b.wantEvents(got, "e1", "e2", "e3", "e4")
	for _, c := range got {
		token := c.Lease.Token
		if want := lane.Of(c.Event.Key, c.Event.ID); token.Lane != want {
			b.t.Errorf("%s: the token's lane is %d, want %d", c.Event.ID, token.Lane, want)
		}
		if !token.Valid() {
			b.t.Errorf("%s: token %v is not valid", c.Event.ID, token)
		}
		if parsed, err := lane.ParseToken(token.String()); err != nil || parsed != token {
			b.t.Errorf("token %v reads back as %v, %v", token, parsed, err)
		}
		if c.Lease.EventID != c.Event.ID || c.Lease.Handler != "h" {
			b.t.Errorf("the lease of %s names %s/%s", c.Event.ID, c.Lease.EventID, c.Lease.Handler)
		}
	}
	// The generation grows when a claim ends, also in the same lane epoch.
	c := b.find(got, "e1")
	b.settle("w", release(c))
	again := b.one("w", "h", "e1")
	if again.Lease.Token.Claims <= c.Lease.Token.Claims {
		b.t.Errorf("generation %d after %d", again.Lease.Token.Claims, c.Lease.Token.Claims)
	}
	b.relinquish("w")
	for _, heir := range b.claim("heir", plenty, "h") {
		old := b.find(append(got, again), heir.Event.ID).Lease.Token
		if heir.Lease.Token.Epoch <= old.Epoch {
			b.t.Errorf("%s: epoch %d after %d, though the lane changed hands", heir.Event.ID, heir.Lease.Token.Epoch, old.Epoch)
		}
	}
}

// spread publishes unkeyed events, at least n to each lane, and returns how
// many there are.
func (b *bed) spread(prefix string, n int, handlers ...string) int {
	b.t.Helper()
	var filled [lane.Count]int
	full := 0
	var events []store.NewEvent
	for i := 0; full < lane.Count; i++ {
		id := numberedName(prefix, i)
		number := lane.Of("", id)
		if filled[number] == n {
			continue
		}
		if filled[number]++; filled[number] == n {
			full++
		}
		events = append(events, b.event(id, "", handlers...))
	}
	b.publishMany(events)
	return len(events)
}

func fewLanes(b *bed) {
	b.spread("e", 2, "h")
	first := b.claim("w", 1, "h")
	if len(first) != 1 {
		b.t.Fatalf("claimed %v, want one", names(first))
	}
	// Whatever another owner can't get lies in lanes that the first one holds.
	seen := make(map[uint8]bool)
	for _, c := range b.claimOn(b.open(), request("other", b.now, plenty, "h")) {
		seen[c.Lease.Token.Lane] = true
	}
	if held := lane.Count - len(seen); held < 1 || held > lane.FirstRound {
		b.t.Errorf("a claim of one delivery holds %d lanes, want 1 to %d", held, lane.FirstRound)
	}
	if seen[first[0].Lease.Token.Lane] {
		b.t.Errorf("lane %d has two owners", first[0].Lease.Token.Lane)
	}
}

func secondOwnerGetsWork(b *bed) {
	b.spread("e", 4, "h")
	var all []store.Claimed
	stores := []store.Store{b.s, b.open(), b.open(), b.s}
	for i, s := range stores {
		got := b.claimOn(s, request(numberedName("w", i), b.now, 10, "h"))
		if len(got) != 10 {
			b.t.Errorf("owner %d got %d deliveries, want 10", i, len(got))
		}
		all = append(all, got...)
	}
	ids := eventIDs(all)
	if len(slices.Compact(ids)) != len(all) {
		b.t.Error("two owners run the same delivery")
	}
	owners := make(map[uint8]int)
	for i, c := range all {
		if owner, ok := owners[c.Lease.Token.Lane]; ok && owner != i/10 {
			b.t.Errorf("lane %d has two owners", c.Lease.Token.Lane)
		}
		owners[c.Lease.Token.Lane] = i / 10
	}
}

func emptyClaimHoldsNothing(b *bed) {
	late := b.numbered("late", 300, "", "h")
	for i := range late {
		late[i].DueAt = b.now.Add(time.Minute)
	}
	b.publish(late...)
	// Blocked work brings nothing, either.
	first := b.event("first", "k", "h")
	first.DueAt = b.now.Add(time.Minute)
	b.publish(first, b.event("second", "k", "h"))
	b.none("w", "h")
	b.pass(time.Minute)
	if got := b.claimOn(b.open(), request("other", b.now.Add(-term/2), plenty, "h")); len(got) != 0 {
		b.t.Fatalf("claimed %d before their time", len(got))
	}
	b.none("w", "g")
	if got := b.claimOn(b.open(), request("third", b.now, plenty, "h")); len(got) != 301 {
		b.t.Errorf("another owner got %d deliveries, want 301: claims that brought nothing hold lanes", len(got))
	}
}

func lanesAfterRelinquish(b *bed) {
	n := b.spread("e", 2, "h")
	got := b.claim("w", 50, "h")
	b.complete("w", got...)
	b.relinquish("w")
	rest := b.claimOn(b.open(), request("other", b.now, plenty, "h"))
	if len(rest) != n-len(got) {
		b.t.Errorf("after the relinquish another owner got %d of %d", len(rest), n-len(got))
	}
}

func relinquishReleases(b *bed) {
	b.publish(append(b.numbered("e", 5, "", "h"), b.numbered("k", 3, "key", "h")...)...)
	got := b.claim("w", plenty, "h")
	b.settle("w", reschedule(b.find(got, "e-0"), b.now))
	b.complete("w", b.find(got, "e-1"))
	b.pass(time.Second)
	b.relinquish("w")
	b.counts(7, 0, 0)
	b.lost(completion(b.find(got, "e-2")), reschedule(b.find(got, "e-3"), b.now), bury(b.find(got, "k-0"), true))
	again := b.claimOn(b.open(), request("other", b.now, plenty, "h"))
	b.wantEvents(again, "e-0", "e-2", "e-3", "e-4", "k-0")
	for _, c := range again {
		want := 1
		if c.Event.ID == "e-0" {
			want = 2
		}
		if c.Attempt != want || c.Lost != 0 {
			b.t.Errorf("%s: attempt %d with %d lost, want %d and 0", c.Event.ID, c.Attempt, c.Lost, want)
		}
	}
	// The owner can come back under its name.
	b.publish(b.event("new", "", "h"))
	b.complete("w", b.one("w", "h", "new"))
}

func relinquishUnknown(b *bed) {
	b.relinquish("nobody")
	b.publish(b.numbered("e", 20, "", "h")...)
	got := b.claim("w", 10, "h")
	other := b.open()
	if err := other.Relinquish(b.ctx(), "w", b.now); err != nil {
		b.t.Fatalf("relinquish on another instance: %v", err)
	}
	b.complete("w", got[0]) // Another instance's owner of this name is not this one.
	done := make(chan error, 4)
	for range cap(done) {
		go func() { done <- b.s.Relinquish(b.ctx(), "w", b.now) }()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			b.t.Errorf("relinquish at once with others: %v", err)
		}
	}
	b.relinquish("w")
	rest := b.claimOn(other, request("other", b.now, plenty, "h"))
	if len(rest) != 19 {
		b.t.Errorf("%d deliveries are left, want 19", len(rest))
	}
}

// oldestFirst: lanes are taken by the age of their work, so what waits longest
// is among the first.
func oldestFirst(b *bed) {
	b.publish(b.event("old", "", "h"))
	b.pass(time.Minute)
	b.spread("new", 4, "h")
	got := b.claim("w", 1, "h")
	b.wantEvents(got, "old")
}

func allWork(b *bed) {
	n := b.spread("e", 3, "h", "g")
	b.publish(b.numbered("k", 10, "key", "h")...)
	got := b.claim("w", plenty, "h", "g")
	if len(got) != 2*n+1 {
		b.t.Errorf("claimed %d deliveries, want %d", len(got), 2*n+1)
	}
	b.complete("w", got...)
	b.counts(9, 0, 0)
}

// differentHandlers: two workers with different handlers both get all their
// work within a few claims, whoever was there first.
func differentHandlers(b *bed) {
	n := b.spread("e", 1, "h", "g")
	other := b.open()
	counts := map[string]int{}
	for range 4 {
		counts["h"] += len(b.claimOn(b.s, request("one", b.now, plenty, "h")))
		counts["g"] += len(b.claimOn(other, request("two", b.now, plenty, "g")))
		b.pass(time.Second)
	}
	if counts["h"] != n || counts["g"] != n {
		b.t.Errorf("got %d of h and %d of g, want %d of each", counts["h"], counts["g"], n)
	}
}

func shares(b *bed) {
	b.spread("e", 2, "busy", "second")
	b.pass(time.Second)
	b.publish(b.event("quiet", "", "quiet"))
	b.publish(b.event("quiet-keyed", "k", "quieter"))
	got := b.claim("w", 8, "busy", "second", "quiet", "quieter")
	count := map[string]int{}
	for _, c := range got {
		count[c.Lease.Handler]++
	}
	if count["quiet"] != 1 || count["quieter"] != 1 || count["busy"] == 0 || count["second"] == 0 {
		b.t.Errorf("a claim of 8 brought %v", count)
	}
	if len(got) != 8 {
		b.t.Errorf("a claim of 8 brought %d", len(got))
	}
}

func turns(b *bed) {
	handlers := []string{"h0", "h1", "h2", "h3", "h4", "h5", "h6"}
	b.publish(b.numbered("e", 30, "", handlers...)...)
	served := map[string]bool{}
	for range 4 { // ceil(7/2) claims serve each of 7 handlers.
		got := b.claim("w", 2, handlers...)
		if len(got) != 2 {
			b.t.Fatalf("claimed %v, want 2", names(got))
		}
		for _, c := range got {
			served[c.Lease.Handler] = true
		}
	}
	if len(served) != len(handlers) {
		b.t.Errorf("4 claims of 2 served %d of 7 handlers", len(served))
	}
}

func handlerLimits(b *bed) {
	b.spread("e", 1, "h", "g")
	r := request("w", b.now, 100, "h", "g")
	r.Handlers[0].Limit = 3
	count := map[string]int{}
	for _, c := range b.claimOn(b.s, r) {
		count[c.Lease.Handler]++
	}
	if count["h"] != 3 || count["g"] != 97 {
		b.t.Errorf("claimed %v, want 3 of h and 97 of g", count)
	}
	r.Limit = 2
	if got := b.claimOn(b.s, r); len(got) != 2 {
		b.t.Errorf("a claim of 2 brought %d", len(got))
	}
}

func moreAndNextDue(b *bed) {
	claim := func(limit int) store.ClaimResult {
		b.t.Helper()
		result, err := b.s.Claim(b.ctx(), request("w", b.now, limit, "h"))
		if err != nil {
			b.t.Fatalf("claim: %v", err)
		}
		return result
	}
	if result := claim(10); result.More || len(result.Deliveries) != 0 {
		b.t.Errorf("an empty database: %+v", result)
	}
	soon := b.event("soon", "", "h")
	soon.DueAt = b.now.Add(time.Minute)
	b.publish(append(b.numbered("e", 40, "", "h"), soon, b.event("foreign", "", "g"))...)
	taken := 0
	for {
		result := claim(15)
		taken += len(result.Deliveries)
		if left := 40 - taken; (left > 0) != result.More {
			b.t.Errorf("%d are left, and More is %v", left, result.More)
		}
		if !result.NextDue.IsZero() && result.NextDue.After(soon.DueAt) {
			b.t.Errorf("NextDue is %v, but work becomes due at %v", result.NextDue, soon.DueAt)
		}
		if len(result.Deliveries) == 0 || taken > 40 {
			break
		}
	}
	if taken != 40 {
		b.t.Errorf("claimed %d, want 40", taken)
	}
	result := claim(10)
	if !result.NextDue.IsZero() && !result.NextDue.Equal(soon.DueAt) {
		b.t.Errorf("NextDue is %v, want %v or the zero time", result.NextDue, soon.DueAt)
	}
}

// seenByNextClaim: whatever a store remembers of an empty database, a commit
// through another instance is found by the very next claim.
func seenByNextClaim(b *bed) {
	other := b.open()
	for i := range 40 {
		b.none("w", "h")
		id := numberedName("e", i)
		if _, err := publish(b.ctx(), other, b.now, b.event(id, "", "h")); err != nil {
			b.t.Fatalf("publish: %v", err)
		}
		b.complete("w", b.one("w", "h", id))
		if i%2 == 0 {
			b.pass(time.Millisecond)
		}
	}
}
