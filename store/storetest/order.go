package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func orderCases() []testCase {
	return []testCase{
		{name: "S4 one claim never takes two of a key", run: oneOfKey},
		{name: "S4 a follower starts after its predecessor has completed", run: followersInOrder},
		{name: "S4 each handler has its own order", run: orderPerHandler},
		{name: "S4 F11 a delayed or rescheduled head blocks its followers", run: backoffBlocks},
		{name: "S4 a delayed predecessor blocks", run: delayedPredecessorBlocks},
		{name: "S4 F11 a released head is taken first again", run: releasedHeadFirst},
		{name: "S4 I8 a hot or blocked key never starves the rest", run: hotKeyStarvesNobody},
		{name: "S4 order holds across owners and instances", run: orderAcrossOwners},
		{name: "S4 completions of one batch free the keys at once", run: completionFreesKey},
		{name: "Z11 Followers is never true without a follower", run: followersFlag},
		{name: "S4 a key and an id with the same text are no relatives", run: keyEqualsID},
	}
}

func oneOfKey(b *bed) {
	b.publish(append(b.numbered("a", 5, "A", "h"), b.numbered("b", 5, "B", "h")...)...)
	got := b.claim("w", plenty, "h")
	b.wantEvents(got, "a-0", "b-0")
	b.none("w", "h")
	b.none("other", "h")
}

func followersInOrder(b *bed) {
	b.publish(b.numbered("e", 50, "k", "h")...)
	for i := range 50 {
		c := b.one("w", "h", numberedName("e", i))
		b.none("w", "h")
		b.complete("w", c)
	}
	b.counts(0, 0, 0)
}

func orderPerHandler(b *bed) {
	b.publish(b.numbered("e", 3, "k", "h", "g")...)
	c := b.one("w", "h", "e-0")
	for i := range 3 {
		b.complete("w", b.one("w", "g", numberedName("e", i)))
	}
	b.complete("w", c)
	b.complete("w", b.one("w", "h", "e-1"))
}

func backoffBlocks(b *bed) {
	b.publish(append(b.numbered("e", 3, "k", "h"), b.event("free", "other", "h"))...)
	got := b.claim("w", plenty, "h")
	b.wantEvents(got, "e-0", "free")
	b.complete("w", b.find(got, "free"))
	head := b.find(got, "e-0")
	for attempt := 1; attempt <= 2; attempt++ {
		if head.Attempt != attempt {
			b.t.Fatalf("attempt %d, want %d", head.Attempt, attempt)
		}
		b.settle("w", reschedule(head, b.now.Add(10*time.Second)))
		b.none("w", "h")
		b.none("other", "h")
		b.pass(10*time.Second - time.Millisecond)
		b.none("w", "h")
		b.pass(time.Millisecond)
		head = b.one("w", "h", "e-0")
	}
	b.settle("w", bury(head, false))
	for _, id := range []string{"e-1", "e-2"} {
		b.complete("w", b.one("w", "h", id))
	}
	b.counts(0, 0, 1)
}

func delayedPredecessorBlocks(b *bed) {
	first := b.event("first", "k", "h")
	first.DueAt = b.now.Add(time.Minute)
	b.publish(first, b.event("second", "k", "h"))
	b.none("w", "h")
	b.pass(time.Minute)
	b.complete("w", b.one("w", "h", "first"))
	b.complete("w", b.one("w", "h", "second"))
}

func releasedHeadFirst(b *bed) {
	b.publish(b.numbered("e", 3, "k", "h")...)
	head := b.one("w", "h", "e-0")
	b.settle("w", release(head))
	head = b.one("w", "h", "e-0")
	if head.Attempt != 1 {
		b.t.Errorf("a release charged an attempt: this is attempt %d", head.Attempt)
	}
	later := release(head)
	later.DueAt = b.now.Add(time.Second)
	b.settle("w", later)
	b.none("w", "h")
	b.pass(time.Second)
	b.complete("w", b.one("w", "h", "e-0"))
	b.complete("w", b.one("w", "h", "e-1"))
}

// hotKeyStarvesNobody: work of other keys and without a key is found behind
// more blocked deliveries than a claim reads, wherever it lies.
func hotKeyStarvesNobody(b *bed) {
	hot := b.numbered("hot", 600, "hot", "h")
	b.publishMany(hot)
	b.pass(time.Second)
	var want []string
	for i := range 20 {
		id := numberedName("free", i)
		b.publish(b.event(id, "", "h"), b.event("key-"+id, "key-"+id, "h"))
		want = append(want, id, "key-"+id)
	}
	// The same lane as the hot key, too.
	mates := laneMates(laneOf("hot"), "mate", 5)
	for _, id := range mates {
		b.publish(b.event(id, "", "h"), b.event("in-"+id, id, "h"))
		want = append(want, id, "in-"+id)
	}
	var seen []string
	head := ""
	for range 40 {
		got := b.claim("w", 10, "h")
		for _, c := range got {
			if c.Event.Key == "hot" {
				head = c.Event.ID
				continue // It stays running: its followers stay blocked.
			}
			seen = append(seen, c.Event.ID)
			b.complete("w", c)
		}
	}
	slices.Sort(seen)
	slices.Sort(want)
	if !slices.Equal(seen, want) {
		b.t.Errorf("behind a hot key %d of %d deliveries came: %v", len(seen), len(want), seen)
	}
	if head != "hot-0" {
		b.t.Errorf("the head of the hot key is %q, want hot-0", head)
	}
}

func orderAcrossOwners(b *bed) {
	stores := []store.Store{b.s, b.open(), b.open()}
	b.publish(b.numbered("e", 30, "k", "h")...)
	for i := range 30 {
		s, owner := stores[i%3], fmt.Sprintf("w%d", i%2)
		got := b.claimOn(s, request(owner, b.now, plenty, "h"))
		b.wantEvents(got, numberedName("e", i))
		for j, other := range stores {
			if more := b.claimOn(other, request(numberedName("x", j), b.now, plenty, "h")); len(more) != 0 {
				b.t.Fatalf("%v runs beside %s", names(more), got[0].Event.ID)
			}
		}
		if ok := b.settleOn(s, owner, completion(got[0])); !ok[0] {
			b.t.Fatalf("completion of %s was refused", got[0].Event.ID)
		}
		if err := s.Relinquish(b.ctx(), owner, b.now); err != nil {
			b.t.Fatalf("relinquish: %v", err)
		}
	}
}

func completionFreesKey(b *bed) {
	for k := range 20 {
		b.publish(b.numbered(numberedName("e", k), 3, numberedName("k", k), "h")...)
	}
	for range 3 {
		got := b.claim("w", plenty, "h")
		if len(got) != 20 {
			b.t.Fatalf("%d deliveries of 20 keys", len(got))
		}
		b.complete("w", got...)
	}
	b.counts(0, 0, 0)
}

func followersFlag(b *bed) {
	b.publish(b.event("alone", "k", "h"), b.event("none", "", "h"), b.event("none2", "", "h"))
	for _, c := range b.claim("w", plenty, "h") {
		if c.Followers {
			b.t.Errorf("%s has no followers", c.Event.ID)
		}
		b.complete("w", c)
	}
}

func keyEqualsID(b *bed) {
	b.publish(b.event("same", "", "h"), b.event("e", "same", "h"), b.event("e2", "same", "h"))
	got := b.claim("w", plenty, "h")
	b.wantEvents(got, "same", "e")
	b.complete("w", b.find(got, "e"))
	b.complete("w", b.one("w", "h", "e2"))
}
