package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func fenceCases() []testCase {
	var cases []testCase
	for _, op := range fencedOperations() {
		cases = append(cases, testCase{
			name: "S7 F02 I5 " + op.name + " under a lost lease changes nothing",
			run: func(b *bed) {
				for _, i := range interleavings() {
					b.t.Run(i.name, func(t *testing.T) { fenceOne(b.fresh(t, Options{}), op, i) })
				}
			},
		})
	}
	return append(cases,
		testCase{name: "S7 F02 a completion and a takeover never both succeed", run: completionAgainstTakeover},
		testCase{name: "S7 F02 overlapping claims of one owner", run: overlappingClaims},
		testCase{name: "S7 settlements of one call are independent", run: independentSettlements},
		testCase{name: "S7 I5 a settled lease is used up", run: usedUp},
		testCase{name: "S7 another owner's lease", run: othersLease},
	)
}

// fenced is one of the operations that a lease fences. It reports whether the
// store says that it was applied.
type fenced struct {
	name  string
	apply func(b *bed, s store.Store, owner string, c store.Claimed) bool
}

func fencedOperations() []fenced {
	settle := func(end func(b *bed, c store.Claimed) store.Settlement) func(*bed, store.Store, string, store.Claimed) bool {
		return func(b *bed, s store.Store, owner string, c store.Claimed) bool {
			b.t.Helper()
			return b.settleOn(s, owner, end(b, c))[0]
		}
	}
	return []fenced{
		{"complete", settle(func(_ *bed, c store.Claimed) store.Settlement { return completion(c) })},
		{"complete in a transaction", func(b *bed, s store.Store, owner string, c store.Claimed) bool {
			b.t.Helper()
			err := s.Transact(b.ctx(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
				return s.CompleteTx(ctx, tx, owner, c.Lease, b.now)
			})
			if err != nil && !errors.Is(err, store.ErrLeaseLost) {
				b.t.Fatalf("complete in a transaction: %v", err)
			}
			return err == nil
		}},
		{"reschedule", settle(func(b *bed, c store.Claimed) store.Settlement {
			return reschedule(c, b.now.Add(time.Hour))
		})},
		{"release", settle(func(b *bed, c store.Claimed) store.Settlement {
			s := release(c)
			s.DueAt, s.Alone = b.now.Add(time.Hour), true
			return s
		})},
		{"bury", settle(func(_ *bed, c store.Claimed) store.Settlement { return bury(c, true) })},
		{"extend", func(b *bed, s store.Store, owner string, c store.Claimed) bool {
			b.t.Helper()
			held, err := s.Extend(b.ctx(), owner, []store.Lease{c.Lease}, b.now, 100*term)
			if err != nil {
				b.t.Fatalf("extend: %v", err)
			}
			if len(held) != 1 {
				b.t.Fatalf("extend of 1 lease reports on %d", len(held))
			}
			return held[0]
		}},
	}
}

// interleaving brings the delivery "e" into a state in which the lease of the
// first claim is lost. It returns who runs it now: an owner on a store, or "".
type interleaving struct {
	name string
	lose func(b *bed, first store.Claimed) (s store.Store, owner string, current store.Claimed)
}

func interleavings() []interleaving {
	takeover := func(owner string) func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
		return func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			second := b.open()
			b.pass(term + time.Millisecond)
			got := b.claimOn(second, request(owner, b.now, plenty, "h"))
			return second, owner, b.find(got, first.Event.ID)
		}
	}
	again := func(end func(b *bed, c store.Claimed) store.Settlement) func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
		return func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			b.settle("w", end(b, first))
			return b.s, "w", b.find(b.claim("w", plenty, "h"), first.Event.ID)
		}
	}
	return []interleaving{
		{"after a takeover", takeover("heir")},
		{"after a takeover under the same name", takeover("w")},
		{"after a takeover by another owner of the same instance", func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			b.pass(term + time.Millisecond)
			return b.s, "heir", b.find(b.claim("heir", plenty, "h"), first.Event.ID)
		}},
		{"after a takeover that released it", func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			s, owner, c := takeover("heir")(b, first)
			b.settleOn(s, owner, release(c))
			return s, "", store.Claimed{}
		}},
		{"after the heir completed it", func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			s, owner, c := takeover("heir")(b, first)
			b.settleOn(s, owner, completion(c))
			return s, "", store.Claimed{}
		}},
		{"after the heir buried it", func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			s, owner, c := takeover("heir")(b, first)
			b.settleOn(s, owner, bury(c, false))
			return s, "", store.Claimed{}
		}},
		{"after a release and a claim of the same owner", again(func(_ *bed, c store.Claimed) store.Settlement { return release(c) })},
		{"after a reschedule and a claim of the same owner", again(func(b *bed, c store.Claimed) store.Settlement {
			return reschedule(c, b.now)
		})},
		{"after relinquish", func(b *bed, _ store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			b.relinquish("w")
			return b.s, "", store.Claimed{}
		}},
		{"after relinquish and a claim of the same owner", func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			b.relinquish("w")
			return b.s, "w", b.find(b.claim("w", plenty, "h"), first.Event.ID)
		}},
		{"after a burial, a requeue and a claim of the same owner", func(b *bed, first store.Claimed) (store.Store, string, store.Claimed) {
			b.t.Helper()
			b.settle("w", bury(first, false))
			if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: first.Event.ID, Handler: "h"}}, b.now); err != nil {
				b.t.Fatalf("requeue: %v", err)
			}
			return b.s, "w", b.find(b.claim("w", plenty, "h"), first.Event.ID)
		}},
	}
}

// fenceOne: the operation under the first lease changes nothing and says so,
// and whoever runs the delivery now can still settle it.
func fenceOne(b *bed, op fenced, i interleaving) {
	b.t.Helper()
	b.publish(b.event("e", "k", "h"), b.event("follower", "k", "h"))
	first := b.one("w", "h", "e")
	s, owner, current := i.lose(b, first)
	before := b.snapshot()
	if op.apply(b, b.s, "w", first) {
		b.t.Fatalf("%s was applied under a lost lease", op.name)
	}
	if after := b.snapshot(); after != before {
		b.t.Fatalf("%s under a lost lease changed\n%s\nto\n%s", op.name, before, after)
	}
	if owner != "" {
		// The stale operation has not extended the lease of the new claim, and
		// has not taken it away.
		if !op.apply(b, s, owner, current) {
			b.t.Fatalf("%s was refused under the current lease", op.name)
		}
	}
	b.pass(200 * term)
	for range 4 {
		for _, c := range b.claim("last", plenty, "h") {
			b.settle("last", completion(c))
		}
		ids := []store.DeliveryID{}
		for _, d := range b.list(store.Filter{Status: store.StatusDead}) {
			ids = append(ids, d.ID)
		}
		if len(ids) == 0 {
			continue
		}
		if err := b.s.Requeue(b.ctx(), ids, b.now); err != nil {
			b.t.Fatalf("requeue: %v", err)
		}
	}
	b.counts(0, 0, 0)
}

// snapshot is what an operator sees of all deliveries, as text.
func (b *bed) snapshot() string {
	b.t.Helper()
	var text strings.Builder
	for _, d := range b.list(store.Filter{}) {
		fmt.Fprintf(&text, "%s/%s %s attempts=%d lost=%d due=%v updated=%v held=%v owner=%q error=%q\n", d.ID.EventID, d.ID.Handler,
			d.Status, d.Attempts, d.Lost, d.DueAt, d.UpdatedAt, d.HoldsKey, d.Owner, d.Error)
	}
	return text.String()
}

// completionAgainstTakeover lets both run at once: the delivery is completed
// and not taken over, or taken over and not completed.
func completionAgainstTakeover(b *bed) {
	second := b.open()
	const rounds = 40
	for round := range rounds {
		id := numberedName("e", round)
		b.publish(b.event(id, "k", "h"))
		c := b.one("w", "h", id)
		b.pass(term + time.Millisecond)
		now, inTx := b.now, round%2 == 0
		completed := make(chan bool, 1)
		failed := make(chan error, 1)
		go func() {
			if inTx {
				err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
					return b.s.CompleteTx(ctx, tx, "w", c.Lease, now)
				})
				completed <- err == nil
				if errors.Is(err, store.ErrLeaseLost) {
					err = nil
				}
				failed <- err
				return
			}
			ok, err := b.s.Settle(b.ctx(), "w", []store.Settlement{completion(c)}, now)
			completed <- err == nil && ok[0]
			failed <- err
		}()
		got := b.claimOn(second, request("heir", now, plenty, "h"))
		done := <-completed
		if err := <-failed; err != nil {
			b.t.Fatalf("round %d: completion: %v", round, err)
		}
		if done == (len(got) == 1) {
			b.t.Fatalf("round %d: completed %v, and taken over: %v", round, done, names(got))
		}
		for _, heir := range got {
			if heir.Attempt != 2 || heir.Lost != 1 {
				b.t.Fatalf("round %d: attempt %d with %d lost, want 2 and 1", round, heir.Attempt, heir.Lost)
			}
			if ok := b.settleOn(second, "heir", completion(heir)); !ok[0] {
				b.t.Fatalf("round %d: the heir's completion was refused", round)
			}
		}
		if err := second.Relinquish(b.ctx(), "heir", now); err != nil {
			b.t.Fatalf("relinquish: %v", err)
		}
	}
	b.counts(0, 0, 0)
}

// overlappingClaims: a dispatcher and a RunOnce beside it claim for the same
// owner on one instance. Nothing is handed out twice, and every lease is good.
func overlappingClaims(b *bed) {
	const n, claimers = 120, 4
	b.publish(append(b.numbered("e", n, "", "h"), b.numbered("k", 10, "key", "h")...)...)
	type outcome struct {
		claimed []store.Claimed
		err     error
	}
	outcomes := make(chan outcome, claimers)
	for range claimers {
		go func() {
			var o outcome
			for range 20 {
				result, err := b.s.Claim(b.ctx(), request("w", b.now, 7, "h"))
				if err != nil {
					o.err = err
					break
				}
				o.claimed = append(o.claimed, result.Deliveries...)
			}
			outcomes <- o
		}()
	}
	var claimed []store.Claimed
	for range claimers {
		o := <-outcomes
		if o.err != nil {
			b.t.Fatalf("claim: %v", o.err)
		}
		claimed = append(claimed, o.claimed...)
	}
	if len(claimed) != n+1 {
		b.t.Errorf("overlapping claims handed out %d deliveries, want %d", len(claimed), n+1)
	}
	seen := map[string]bool{}
	for _, c := range claimed {
		if seen[c.Event.ID] {
			b.t.Errorf("%s was handed out twice", c.Event.ID)
		}
		seen[c.Event.ID] = true
	}
	b.complete("w", claimed...)
	b.counts(9, 0, 0)
}

func independentSettlements(b *bed) {
	b.publish(b.numbered("e", 6, "", "h")...)
	got := b.claim("w", plenty, "h")
	b.complete("w", got[0])
	b.settle("w", reschedule(got[1], b.now.Add(time.Hour)))
	list := []store.Settlement{
		completion(got[0]), completion(got[2]), bury(got[1], false), reschedule(got[3], b.now.Add(time.Minute)), bury(got[4], false), release(got[5]),
	}
	want := []bool{false, true, false, true, true, true}
	for i, ok := range b.settleOn(b.s, "w", list...) {
		if ok != want[i] {
			b.t.Errorf("settlement %d was applied: %v, want %v", i, ok, want[i])
		}
	}
	if d := b.delivery(got[1].Event.ID, "h"); d.Status != store.StatusPending || d.Attempts != 1 {
		b.t.Errorf("a delivery whose lease was used up: %+v", d)
	}
	b.counts(3, 0, 1)
	if ok := b.settleOn(b.s, "w"); len(ok) != 0 {
		b.t.Errorf("no settlements, and results %v", ok)
	}
}

func usedUp(b *bed) {
	b.publish(b.numbered("e", 4, "", "h")...)
	got := b.claim("w", plenty, "h")
	first := []store.Settlement{completion(got[0]), reschedule(got[1], b.now.Add(time.Hour)), release(got[2]), bury(got[3], false)}
	first[2].DueAt = b.now.Add(time.Hour)
	b.settle("w", first...)
	before := b.snapshot()
	for _, c := range got {
		for _, op := range fencedOperations() {
			if op.apply(b, b.s, "w", c) {
				b.t.Errorf("%s of %s was applied under a lease that was used up", op.name, c.Event.ID)
			}
		}
	}
	if after := b.snapshot(); after != before {
		b.t.Errorf("leases that were used up changed\n%s\nto\n%s", before, after)
	}
}

func othersLease(b *bed) {
	b.publish(b.numbered("e", 2, "", "h")...)
	got := b.claim("w", plenty, "h")
	b.publish(b.numbered("x", 2, "", "g")...)
	b.claim("other", plenty, "g")
	stranger := b.open()
	b.claimOn(stranger, request("w", b.now, 1, "nothing"))
	before := b.snapshot()
	for _, op := range fencedOperations() {
		if op.apply(b, b.s, "other", got[0]) || op.apply(b, b.s, "nobody", got[0]) {
			b.t.Errorf("%s was applied for an owner that has not claimed", op.name)
		}
		if op.apply(b, stranger, "w", got[0]) {
			b.t.Errorf("%s was applied for the same name on another instance", op.name)
		}
	}
	if after := b.snapshot(); after != before {
		b.t.Errorf("others' leases changed\n%s\nto\n%s", before, after)
	}
	b.complete("w", got...)
}
