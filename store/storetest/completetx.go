package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func completeTxTogether(b *bed) {
	b.publish(append(b.numbered("e", 6, "k", "h"), b.numbered("u", 6, "", "h")...)...)
	for turn := range 6 {
		got := b.claim("w", plenty, "h")
		for _, c := range got {
			// Every other one goes back once, with what it wrote.
			undo := turn%2 == 0 && c.Attempt == 1 && c.Event.Key == ""
			err := b.s.Transact(b.ctx(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
				if err := b.db.Effect(ctx, tx, c.Event.ID); err != nil {
					return err
				}
				follow := b.event(c.Event.ID+"-follow-up", "", "nobody")
				if _, err := b.s.Append(ctx, tx, []store.NewEvent{follow}, b.now); err != nil {
					return err
				}
				if err := b.s.CompleteTx(ctx, tx, "w", c.Lease, b.now); err != nil {
					return err
				}
				if undo {
					return errUndo
				}
				return nil
			})
			switch {
			case undo && errors.Is(err, errUndo):
				b.settle("w", reschedule(c, b.now))
			case err != nil:
				b.t.Fatalf("transactional handler: %v", err)
			}
		}
	}
	b.complete("w", b.claim("w", plenty, "h")...)
	got := b.db.Effects(b.t, b.s)
	var keyed []string
	for _, id := range got {
		if id[0] == 'e' {
			keyed = append(keyed, id)
		}
	}
	if want := []string{"e-0", "e-1", "e-2", "e-3", "e-4", "e-5"}; !slices.Equal(keyed, want) {
		b.t.Errorf("the rows of the key are %v, want %v", keyed, want)
	}
	slices.Sort(got)
	if len(got) != 12 || len(slices.Compact(got)) != 12 {
		b.t.Errorf("the caller's rows are %v, want each of 12 once", got)
	}
	b.counts(12, 0, 0)
}

func completeTxRollback(b *bed) {
	b.publish(b.event("e", "k", "h"), b.event("f", "k", "h"))
	c := b.one("w", "h", "e")
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if err := b.s.CompleteTx(ctx, tx, "w", c.Lease, b.now); err != nil {
			return err
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		b.t.Fatalf("transact: %v", err)
	}
	b.counts(1, 1, 0)
	b.none("w", "h")
	b.settle("w", reschedule(c, b.now))
	again := b.one("w", "h", "e")
	if again.Attempt != 2 {
		b.t.Errorf("attempt %d, want 2", again.Attempt)
	}
	b.complete("w", again)
	b.complete("w", b.one("w", "h", "f"))
}

// completeTxLost: a worker that lost its lease can't commit, and what its
// handler wrote is undone.
func completeTxLost(b *bed) {
	b.publish(b.event("e", "k", "h"))
	c := b.one("w", "h", "e")
	b.pass(term + time.Millisecond)
	second := b.open()
	heir := b.claimOn(second, request("heir", b.now, 1, "h"))
	b.wantEvents(heir, "e")
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if b.db.Effect != nil {
			if err := b.db.Effect(ctx, tx, "lost"); err != nil {
				return err
			}
		}
		return b.s.CompleteTx(ctx, tx, "w", c.Lease, b.now)
	})
	b.wantError(err, store.ErrLeaseLost)
	if b.db.Effects != nil && len(b.db.Effects(b.t, b.s)) != 0 {
		b.t.Error("a handler that lost its lease left a row")
	}
	b.counts(0, 1, 0)
	if ok := b.settleOn(second, "heir", completion(heir[0])); !ok[0] {
		b.t.Error("the heir's completion was refused")
	}
}

// takeoverBeforeCommit: a worker completes in a transaction, and somebody takes
// over before it commits. Either the takeover waits and finds nothing, or the
// commit fails; never do both succeed.
//
//nolint:contextcheck // The heir works outside of the transaction.
func takeoverBeforeCommit(b *bed) {
	second := b.open()
	b.publish(b.event("e", "k", "h"))
	c := b.one("w", "h", "e")
	b.pass(term + time.Millisecond)
	var heirs []store.Claimed
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if err := b.s.CompleteTx(ctx, tx, "w", c.Lease, b.now); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(b.ctx(), 200*time.Millisecond)
		defer cancel()
		result, err := second.Claim(bounded, request("heir", b.now, plenty, "h"))
		if err != nil {
			b.oneOf(err, store.ErrTimeout, store.ErrUnavailable, store.ErrConflict)
		}
		heirs = result.Deliveries
		return nil
	})
	if len(heirs) > 0 {
		b.wantError(err, store.ErrLeaseLost)
		if ok := b.settleOn(second, "heir", completion(heirs[0])); !ok[0] {
			b.t.Error("the heir's completion was refused")
		}
	} else if err != nil {
		b.t.Errorf("nobody took over, and the commit failed: %v", err)
	}
	b.counts(0, 0, 0)
}

// runInTx is a transactional handler: an effect and the completion, together.
func (b *bed) runInTx(s store.Store, owner string, c store.Claimed) error {
	return runInTx(b.ctx(), s, b.db.Effect, owner, c, b.now)
}

func runInTx(
	ctx context.Context, s store.Store, effect func(context.Context, store.Tx, string) error, owner string, c store.Claimed, now time.Time,
) error {
	return s.Transact(ctx, store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
		if err := effect(ctx, tx, c.Event.ID); err != nil {
			return err
		}
		return s.CompleteTx(ctx, tx, owner, c.Lease, now)
	})
}
