package storetest

import (
	"context"
	"fmt"
	"math"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

func tokenCases() []testCase {
	return []testCase{
		{name: "S7 a token that cannot have been issued is refused", run: impossibleTokens},
		{name: "S7 an impossible token costs no transaction", needs: needsTransactions, run: impossibleTokensCost},
		{name: "S7 a forged token changes nothing", run: forgedTokens},
		{name: "S7 a forged Ref reaches no other delivery", run: forgedRefs},
	}
}

func impossible() []lane.Token {
	return []lane.Token{{}, {Lane: 1, Epoch: 0, Claims: 1}, {Epoch: -1}, {Epoch: 1, Claims: -1}, {Epoch: math.MinInt64, Claims: math.MinInt64}}
}

func impossibleTokens(b *bed) {
	b.publish(b.numbered("e", 2, "", "h")...)
	got := b.claim("w", plenty, "h")
	before := b.snapshot()
	for _, token := range impossible() {
		bad := got[1]
		bad.Lease.Token = token
		_, err := b.s.Settle(b.ctx(), "w", []store.Settlement{completion(got[0]), completion(bad)}, b.now)
		b.wantError(err, store.ErrInvalidToken)
		err = b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			return b.s.CompleteTx(ctx, tx, "w", bad.Lease, b.now)
		})
		b.wantError(err, store.ErrInvalidToken)
		held, err := b.s.Extend(b.ctx(), "w", []store.Lease{bad.Lease}, b.now, term)
		if err == nil && held[0] {
			b.t.Errorf("a lease with token %v was extended", token)
		} else if err != nil {
			b.wantError(err, store.ErrInvalidToken)
		}
	}
	if after := b.snapshot(); after != before {
		b.t.Errorf("impossible tokens changed\n%s\nto\n%s", before, after)
	}
	b.complete("w", got...)
}

func impossibleTokensCost(b *bed) {
	b.publish(b.event("e", "", "h"))
	bad := b.one("w", "h", "e")
	before := b.db.Counters.Transactions()
	for _, token := range impossible() {
		bad.Lease.Token = token
		_, err := b.s.Settle(b.ctx(), "w", []store.Settlement{completion(bad)}, b.now)
		b.wantError(err, store.ErrInvalidToken)
	}
	if after := b.db.Counters.Transactions(); after != before {
		b.t.Errorf("impossible tokens cost %d transactions", after-before)
	}
}

func forgedTokens(b *bed) {
	b.publish(append(b.numbered("e", 3, "", "h"), b.event("waits", "", "other"))...)
	got := b.claim("w", plenty, "h")
	before := b.snapshot()
	genuine := got[0].Lease
	forged := []store.Lease{}
	for _, token := range []lane.Token{
		{Lane: genuine.Token.Lane, Epoch: genuine.Token.Epoch, Claims: genuine.Token.Claims + 1},
		{Lane: genuine.Token.Lane, Epoch: genuine.Token.Epoch + 1, Claims: genuine.Token.Claims},
		{Lane: genuine.Token.Lane, Epoch: math.MaxInt64, Claims: math.MaxInt64},
		{Lane: genuine.Token.Lane + 1, Epoch: genuine.Token.Epoch, Claims: genuine.Token.Claims},
	} {
		lease := genuine
		lease.Token = token
		forged = append(forged, lease)
	}
	for _, name := range []store.DeliveryID{
		{EventID: "waits", Handler: "other"},
		{EventID: "missing", Handler: "h"},
		{EventID: genuine.EventID, Handler: "other"},
		{EventID: "", Handler: ""},
	} {
		lease := genuine
		lease.EventID, lease.Handler = name.EventID, name.Handler
		lease.Ref = [2]int64{}
		forged = append(forged, lease)
	}
	for _, lease := range forged {
		for _, op := range fencedOperations() {
			if op.apply(b, b.s, "w", store.Claimed{Event: got[0].Event, Lease: lease}) {
				b.t.Errorf("%s was applied with the lease %+v; the genuine one is %+v", op.name, lease, genuine)
			}
		}
	}
	if after := b.snapshot(); after != before {
		b.t.Errorf("forged tokens changed\n%s\nto\n%s", before, after)
	}
	b.complete("w", got...)
}

// forgedRefs: a lease with a wrong Ref does what its token and names allow, or
// nothing; it never reaches what the Ref points to.
func forgedRefs(b *bed) {
	// All in one lane, so that lane and epoch are no help.
	ids := laneMates(7, "e", 12)
	var events []store.NewEvent
	for _, id := range ids {
		events = append(events, b.event(id, "", "h"))
	}
	b.publish(events...)
	got := b.claim("w", plenty, "h")
	if len(got) != len(ids) {
		b.t.Fatalf("claimed %d, want %d", len(got), len(ids))
	}
	victim := got[len(got)-1]
	refs := [][2]int64{
		victim.Lease.Ref,
		{},
		{-1, -1},
		{math.MaxInt64, math.MaxInt64},
		{math.MinInt64, math.MinInt64},
		{victim.Lease.Ref[0], got[0].Lease.Ref[1]},
		{got[0].Lease.Ref[0], victim.Lease.Ref[1]},
	}
	for i, ref := range refs {
		c := got[i]
		c.Lease.Ref = ref
		before := fmt.Sprintf("%+v", b.delivery(victim.Event.ID, "h"))
		applied := b.settleOn(b.s, "w", bury(c, false))[0]
		if after := fmt.Sprintf("%+v", b.delivery(victim.Event.ID, "h")); after != before {
			b.t.Fatalf("the lease of %s with the Ref %v changed %s to %s", c.Event.ID, ref, victim.Event.ID, after)
		}
		d := b.delivery(c.Event.ID, "h")
		if applied != (d.Status == store.StatusDead) {
			b.t.Errorf("Ref %v: reported as applied: %v, and the delivery is %s", ref, applied, d.Status)
		}
	}
	b.complete("w", victim)
}
