package storetest

import (
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func aliasCases() []testCase {
	return []testCase{
		{name: "B21 Z14 an alias is deduplicated with its handler", run: aliasDeduplication},
		{name: "B21 Z14 a renamed handler takes its old deliveries", run: aliasClaims},
		{name: "B21 Z14 order holds over the whole set", run: aliasOrder},
		{name: "B21 Z14 order holds while old and new processes run", run: aliasOrderAcrossOwners},
		{name: "B21 Z14 a requeued one of the old id waits", run: aliasRequeuedAcrossOwners},
		{name: "B21 Z14 S10 parked and held deliveries of a set", run: aliasParkedAndHeld},
		{name: "B21 Z14 takeover and operators go by the stored id", run: aliasTakeover},
	}
}

func renamed() store.Handler { return store.Handler{ID: "new", Aliases: []string{"old", "older"}} }

func setRequest(owner string, now time.Time, limit int) store.ClaimRequest {
	r := request(owner, now, limit)
	r.Handlers = []store.HandlerLimit{{Handler: renamed(), Limit: limit}}
	return r
}

func (b *bed) forSet(id, key string) store.NewEvent {
	e := b.event(id, key)
	e.Handlers = []store.Handler{renamed()}
	return e
}

// oneOfSet claims for the set and wants exactly one delivery.
func (b *bed) oneOfSet(owner, eventID, handler string) store.Claimed {
	b.t.Helper()
	got := b.claimOn(b.s, setRequest(owner, b.now, plenty))
	if len(got) != 1 || got[0].Event.ID != eventID || got[0].Lease.Handler != handler {
		b.t.Fatalf("claimed %v, want only %s/%s", names(got), eventID, handler)
	}
	return got[0]
}

func aliasDeduplication(b *bed) {
	b.publish(b.event("pending", "", "old"), b.event("done", "", "older"), b.event("both", "", "old", "older"))
	b.complete("w", b.find(b.claim("w", plenty, "older"), "done"))
	b.relinquish("w")
	b.wantAppended(b.publish(b.forSet("pending", ""))[0], false, 0)
	b.wantAppended(b.publish(b.forSet("done", ""))[0], false, 0)
	b.wantAppended(b.publish(b.forSet("both", ""))[0], false, 0)
	b.wantAppended(b.publish(b.forSet("fresh", ""))[0], true, 1)
	if d := b.delivery("fresh", "new"); d.Status != store.StatusPending {
		b.t.Errorf("the fresh delivery: %+v", d)
	}
	// A process that doesn't know of the rename publishes for the old id only:
	// that is another handler to it, and adds its own.
	b.wantAppended(b.publish(b.event("fresh", "", "new"))[0], false, 0)
}

func aliasClaims(b *bed) {
	b.publish(b.event("e1", "", "old"), b.event("e2", "", "older"), b.event("e4", "", "other"))
	b.publish(b.forSet("e3", ""))
	got := b.claimOn(b.s, setRequest("w", b.now, plenty))
	b.wantEvents(got, "e1", "e2", "e3")
	for id, handler := range map[string]string{"e1": "old", "e2": "older", "e3": "new"} {
		if c := b.find(got, id); c.Lease.Handler != handler {
			b.t.Errorf("%s is leased as %s, want %s", id, c.Lease.Handler, handler)
		}
	}
	b.settle("w", completion(b.find(got, "e1")), bury(b.find(got, "e2"), false), reschedule(b.find(got, "e3"), b.now))
	if d := b.delivery("e2", "older"); d.Status != store.StatusDead {
		b.t.Errorf("the dead one: %+v", d)
	}
	b.complete("w", b.oneOfSet("w", "e3", "new"))
	// Limits are for the set.
	b.publish(b.numbered("l", 5, "", "old")...)
	b.publish(b.numbered("m", 5, "", "older")...)
	if got := b.claimOn(b.s, setRequest("w", b.now, 4)); len(got) != 4 {
		b.t.Errorf("a set with limit 4 claimed %v", names(got))
	}
}

func aliasOrder(b *bed) {
	b.publish(b.event("e1", "k", "older"))
	b.publish(b.forSet("e2", "k"))
	b.publish(b.event("e3", "k", "old"))
	b.publish(b.forSet("e4", "k"))
	for _, want := range [][2]string{{"e1", "older"}, {"e2", "new"}, {"e3", "old"}, {"e4", "new"}} {
		c := b.oneOfSet("w", want[0], want[1])
		if got := b.claimOn(b.s, setRequest("w", b.now, plenty)); len(got) != 0 {
			b.t.Fatalf("%v runs beside %s", names(got), want[0])
		}
		b.settle("w", reschedule(c, b.now.Add(time.Second)))
		if got := b.claimOn(b.s, setRequest("w", b.now, plenty)); len(got) != 0 {
			b.t.Fatalf("%v passed %s", names(got), want[0])
		}
		b.pass(time.Second)
		b.complete("w", b.oneOfSet("w", want[0], want[1]))
	}
}

// aliasOrderAcrossOwners: in a rolling deployment the old processes claim for
// the old id and the new ones for the set. No two run one key at once.
func aliasOrderAcrossOwners(b *bed) {
	fresh := b.open()
	b.publish(b.event("e1", "k", "old"))
	b.publish(b.forSet("e2", "k"))
	b.publish(b.event("e3", "k", "old"))
	old := b.one("old", "old", "e1")
	if got := b.claimOn(fresh, setRequest("new", b.now, plenty)); len(got) != 0 {
		b.t.Fatalf("%v runs beside e1, which an old process runs", names(got))
	}
	b.complete("old", old)
	b.relinquish("old")
	got := b.claimOn(fresh, setRequest("new", b.now, plenty))
	b.wantEvents(got, "e2")
	if ok := b.settleOn(fresh, "new", completion(got[0])); !ok[0] {
		b.t.Fatal("the completion was refused")
	}
	// A requeued one of the other id waits, too.
	got = b.claimOn(fresh, setRequest("new", b.now, plenty))
	b.wantEvents(got, "e3")
	if ok := b.settleOn(fresh, "new", bury(got[0], false)); !ok[0] {
		b.t.Fatal("the burial was refused")
	}
	b.publish(b.forSet("e4", "k"))
	got = b.claimOn(fresh, setRequest("new", b.now, plenty))
	b.wantEvents(got, "e4")
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "e3", Handler: "old"}}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	if more := b.claimOn(b.s, setRequest("third", b.now, plenty)); len(more) != 0 {
		b.t.Fatalf("%v runs beside e4", names(more))
	}
	if ok := b.settleOn(fresh, "new", completion(got[0])); !ok[0] {
		b.t.Fatal("the completion was refused")
	}
	if err := fresh.Relinquish(b.ctx(), "new", b.now); err != nil {
		b.t.Fatalf("relinquish: %v", err)
	}
	b.complete("third", b.oneOfSet("third", "e3", "old"))
}

// aliasRequeuedAcrossOwners: a requeued delivery of the old id lies in a lane
// that nobody holds, while another worker runs one of the new id.
func aliasRequeuedAcrossOwners(b *bed) {
	fresh := b.open()
	b.publish(b.event("e1", "k", "old"))
	b.settle("w", bury(b.one("w", "old", "e1"), false))
	b.relinquish("w")
	b.publish(b.forSet("e2", "k"))
	running := b.claimOn(fresh, setRequest("new", b.now, plenty))
	b.wantEvents(running, "e2")
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "e1", Handler: "old"}}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	if got := b.claimOn(b.s, setRequest("third", b.now, plenty)); len(got) != 0 {
		b.t.Fatalf("%v runs beside e2", names(got))
	}
	if ok := b.settleOn(fresh, "new", completion(running[0])); !ok[0] {
		b.t.Fatal("the completion was refused")
	}
	b.complete("third", b.oneOfSet("third", "e1", "old"))
}

func aliasParkedAndHeld(b *bed) {
	const n = 90
	for i := range n {
		id := numberedName("e", i)
		switch i % 3 {
		case 0:
			b.publish(b.event(id, "k", "old"))
		case 1:
			b.publish(b.forSet(id, "k"))
		default:
			b.publish(b.event(id, "k", "older"))
		}
	}
	stored := []string{"old", "new", "older"}
	for i := range n {
		c := b.oneOfSet("w", numberedName("e", i), stored[i%3])
		if got := b.claimOn(b.s, setRequest("w", b.now, plenty)); len(got) != 0 {
			b.t.Fatalf("%v runs beside %s", names(got), c.Event.ID)
		}
		if i%10 == 4 {
			b.settle("w", bury(c, true))
			if got := b.claimOn(b.s, setRequest("w", b.now, plenty)); len(got) != 0 {
				b.t.Fatalf("%v passed the held %s", names(got), c.Event.ID)
			}
			if err := b.s.Skip(b.ctx(), store.DeliveryID{EventID: c.Event.ID, Handler: c.Lease.Handler}, b.now); err != nil {
				b.t.Fatalf("skip: %v", err)
			}
			continue
		}
		b.complete("w", c)
	}
	b.counts(0, 0, n/10)
}

func aliasTakeover(b *bed) {
	b.publish(b.event("e", "k", "old"))
	b.oneOfSet("w", "e", "old")
	b.pass(term + time.Millisecond)
	c := b.oneOfSet("heir", "e", "old")
	if c.Attempt != 2 || c.Lost != 1 {
		b.t.Errorf("attempt %d with %d lost, want 2 and 1", c.Attempt, c.Lost)
	}
	b.settle("heir", bury(c, false))
	b.wantError(b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "e", Handler: "new"}}, b.now), store.ErrNotFound)
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "e", Handler: "old"}}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	b.complete("heir", b.oneOfSet("heir", "e", "old"))
}
