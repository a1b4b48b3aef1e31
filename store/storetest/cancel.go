package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// moments is how many moments of one call the cases cancel at. A call that asks
// its context less often is not cancelled by the later ones.
const moments = 48

func cancelCases() []testCase {
	return []testCase{
		{name: "S9 a claim cancelled at any moment leaves nothing running", run: claimCancelled},
		{name: "S9 a cancelled claim and then relinquish", run: claimCancelledThenRelinquished},
		{name: "S8 S9 a takeover cancelled at any moment charges exactly once", run: takeoverCancelled},
		{name: "S2 I7 an append cancelled at any moment", run: appendCancelled},
		{name: "S7 I7 a settlement cancelled at any moment", run: settleCancelled},
		{name: "S15 a context that ended before the call", run: contextEnded},
	}
}

// countingContext cancels itself when it is asked for the nth time whether it
// has ended. So every place at which a store looks at its context is a moment
// at which a case can cancel, and no clock is involved.
type countingContext struct {
	context.Context //nolint:containedctx // It is a context itself.
	cancel          context.CancelFunc
	mu              sync.Mutex
	left            int
}

// cancelAt returns a context that is cancelled when it is looked at for the
// nth time.
func cancelAt(parent context.Context, n int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	return &countingContext{Context: ctx, cancel: cancel, left: n}, cancel
}

func (c *countingContext) look() {
	c.mu.Lock()
	c.left--
	now := c.left == 0
	c.mu.Unlock()
	if now {
		c.cancel()
	}
}

// Done counts as a look.
func (c *countingContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err counts as a look.
func (c *countingContext) Err() error {
	c.look()
	return c.Context.Err()
}

// claimCancelled: whatever a claim that failed had recorded, the next claim of
// the owner hands everything out, without a charge.
func claimCancelled(b *bed) {
	failed := 0
	for n := 1; n <= moments; n++ {
		handler := numberedName("h", n)
		b.publish(append(b.numbered(numberedName("e", n), 3, "", handler), b.event(numberedName("k", n), "key", handler))...)
		ctx, cancel := cancelAt(b.ctx(), n)
		first, err := b.s.Claim(ctx, request("w", b.now, plenty, handler))
		cancel()
		if err != nil {
			failed++
			b.wantError(err)
			if len(first.Deliveries) != 0 {
				b.t.Fatalf("moment %d: a failed claim handed out %v", n, names(first.Deliveries))
			}
		}
		got := slices.Concat(first.Deliveries, b.claim("w", plenty, handler))
		if len(got) != 4 {
			b.t.Fatalf("moment %d (%v): the owner has %v, want 4 deliveries", n, err, names(got))
		}
		for _, c := range got {
			if c.Attempt != 1 || c.Lost != 0 {
				b.t.Fatalf("moment %d (%v): attempt %d with %d lost, want 1 and 0", n, err, c.Attempt, c.Lost)
			}
		}
		b.complete("w", got...)
		b.counts(0, 0, 0)
	}
	if failed == 0 {
		b.t.Error("no claim looked at its context")
	}
}

// claimCancelledThenRelinquished: an owner that gives up after a failed claim
// leaves everything for the next one.
func claimCancelledThenRelinquished(b *bed) {
	for n := 1; n <= moments; n++ {
		handler := numberedName("h", n)
		b.publish(b.numbered(numberedName("e", n), 3, "", handler)...)
		ctx, cancel := cancelAt(b.ctx(), n)
		_, err := b.s.Claim(ctx, request("w", b.now, plenty, handler))
		cancel()
		b.relinquish("w")
		b.counts(3, 0, 0)
		got := b.claimOn(b.open(), request("other", b.now, plenty, handler))
		if len(got) != 3 {
			b.t.Fatalf("moment %d (%v): the next owner got %v, want 3 deliveries", n, err, names(got))
		}
		for _, c := range got {
			if c.Attempt != 1 || c.Lost != 0 {
				b.t.Fatalf("moment %d (%v): attempt %d with %d lost, want 1 and 0", n, err, c.Attempt, c.Lost)
			}
		}
		// The other instance is gone; what it ran is taken over later.
		b.pass(2 * term)
		b.complete("heir", b.claim("heir", plenty, handler)...)
		b.relinquish("heir")
	}
}

func takeoverCancelled(b *bed) {
	dead := b.open()
	for n := 1; n <= moments; n++ {
		handler := numberedName("h", n)
		b.publish(append(b.numbered(numberedName("e", n), 3, "", handler), b.event(numberedName("k", n), "key", handler))...)
		if got := b.claimOn(dead, request("dead", b.now, plenty, handler)); len(got) != 4 {
			b.t.Fatalf("claimed %v, want 4 deliveries", names(got))
		}
		b.pass(term + time.Millisecond)
		var got []store.Claimed
		for _, moment := range []int{n, n + 1, n / 2, n + 7} {
			ctx, cancel := cancelAt(b.ctx(), moment)
			result, err := b.s.Claim(ctx, request("w", b.now, plenty, handler))
			cancel()
			if err == nil {
				got = append(got, result.Deliveries...)
			}
		}
		got = append(got, b.claim("w", plenty, handler)...)
		if len(got) != 4 {
			b.t.Fatalf("moment %d: the heir has %v, want 4 deliveries", n, names(got))
		}
		for _, c := range got {
			if c.Attempt != 2 || c.Lost != 1 {
				b.t.Fatalf("moment %d: attempt %d with %d lost, want 2 and 1", n, c.Attempt, c.Lost)
			}
		}
		b.complete("w", got...)
		b.relinquish("w")
	}
	b.counts(0, 0, 0)
}

// appendCancelled: nil means that the event is there; an error means that it is
// not, unless it says that the outcome is unknown.
func appendCancelled(b *bed) {
	for n := 1; n <= moments; n++ {
		id := numberedName("e", n)
		ctx, cancel := cancelAt(b.ctx(), n)
		_, err := publish(ctx, b.s, b.now, b.event(id, "", "h"), b.event(id+"-2", "k", "h"))
		cancel()
		_, _, missing := b.s.GetEvent(b.ctx(), id)
		_, _, missing2 := b.s.GetEvent(b.ctx(), id+"-2")
		if (missing == nil) != (missing2 == nil) {
			b.t.Fatalf("moment %d: half of a transaction is there", n)
		}
		switch {
		case err == nil && missing != nil:
			b.t.Fatalf("moment %d: reported as committed, but %v", n, missing)
		case err != nil && !errors.Is(err, store.ErrOutcomeUnknown) && missing == nil:
			b.t.Fatalf("moment %d: reported as not committed (%v), but the event is there", n, err)
		case err != nil:
			b.wantError(err)
		}
	}
	// The store works as before.
	b.publish(b.event("last", "", "other"))
	b.complete("w", b.one("w", "other", "last"))
}

// settleCancelled: true only for what is proven, and an error that doesn't say
// otherwise changed nothing.
func settleCancelled(b *bed) {
	for n := 1; n <= moments; n++ {
		handler := numberedName("h", n)
		b.publish(b.event(numberedName("e", n), "", handler), b.event(numberedName("f", n), "k", handler))
		got := b.claim("w", plenty, handler)
		list := []store.Settlement{completion(got[0]), completion(got[1])}
		ctx, cancel := cancelAt(b.ctx(), n)
		ok, err := b.s.Settle(ctx, "w", list, b.now)
		cancel()
		if err == nil {
			if !ok[0] || !ok[1] {
				b.t.Fatalf("moment %d: settle reports %v without an error", n, ok)
			}
			continue
		}
		b.wantError(err)
		again := b.settleOn(b.s, "w", list...)
		if again[0] != again[1] {
			b.t.Fatalf("moment %d: half of a batch was applied", n)
		}
		if !again[0] && !errors.Is(err, store.ErrOutcomeUnknown) {
			b.t.Fatalf("moment %d: reported as not applied (%v), but it was", n, err)
		}
	}
	b.counts(0, 0, 0)
}

func contextEnded(b *bed) {
	b.publish(b.event("e", "k", "h"), b.event("f", "", "g"))
	got := b.one("w", "h", "e")
	cancelled, cancel := context.WithCancel(b.ctx())
	cancel()
	expired, cancelExpired := context.WithDeadline(b.ctx(), epoch().AddDate(-20, 0, 0))
	defer cancelExpired()
	for _, ended := range []struct {
		ctx   context.Context //nolint:containedctx // A row of a table.
		cause error
	}{{cancelled, context.Canceled}, {expired, context.DeadlineExceeded}} {
		for name, call := range anyCalls(b, got) {
			err := call(ended.ctx)
			problem := errorProblem(err)
			switch {
			case problem != "":
			case !errors.Is(err, ended.cause):
				problem = fmt.Sprintf("the cause %q is out of reach in %v", ended.cause, err)
			case errors.Is(ended.cause, context.DeadlineExceeded) && !errors.Is(err, store.ErrTimeout):
				problem = fmt.Sprintf("%v does not match %q", err, store.ErrTimeout)
			}
			if problem != "" {
				b.t.Errorf("%s: %s", name, problem)
			}
		}
	}
	b.counts(1, 1, 0)
	b.complete("w", got)
}

// anyCalls are calls that need the database, by name.
func anyCalls(b *bed, got store.Claimed) map[string]func(ctx context.Context) error {
	id := store.DeliveryID{EventID: "f", Handler: "g"}
	return map[string]func(ctx context.Context) error{
		"publish": func(ctx context.Context) error {
			_, err := publish(ctx, b.s, b.now, b.event("never", "", "h"))
			return err
		},
		"claim": func(ctx context.Context) error {
			_, err := b.s.Claim(ctx, request("w", b.now, 1, "g"))
			return err
		},
		"extend": func(ctx context.Context) error {
			_, err := b.s.Extend(ctx, "w", []store.Lease{got.Lease}, b.now, term)
			return err
		},
		"settle": func(ctx context.Context) error {
			_, err := b.s.Settle(ctx, "w", []store.Settlement{completion(got)}, b.now)
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := b.s.List(ctx, store.Filter{}, store.Page{Limit: 1})
			return err
		},
		"get event": func(ctx context.Context) error {
			_, _, err := b.s.GetEvent(ctx, "e")
			return err
		},
		"stats": func(ctx context.Context) error {
			_, err := b.s.Stats(ctx, b.now)
			return err
		},
		"bury pending": func(ctx context.Context) error { return b.s.BuryPending(ctx, id, "no", b.now) },
		"reschedule pending": func(ctx context.Context) error {
			return b.s.ReschedulePending(ctx, id, b.now, b.now)
		},
		"cancel event": func(ctx context.Context) error { return b.s.CancelEvent(ctx, "f", b.now) },
		"purge": func(ctx context.Context) error {
			_, err := b.s.Purge(ctx, store.PurgeRequest{CompletedBefore: b.now, Limit: 1})
			return err
		},
		"handlers": func(ctx context.Context) error {
			_, err := b.s.Handlers(ctx)
			return err
		},
		"record handlers": func(ctx context.Context) error {
			return b.s.RecordHandlers(ctx, []store.HandlerEntry{{Handler: store.Handler{ID: "new"}}}, b.now)
		},
		"pause handler": func(ctx context.Context) error { return b.s.PauseHandler(ctx, "h", true, b.now) },
	}
}

// numberedName returns prefix-n.
func numberedName(prefix string, n int) string { return fmt.Sprintf("%s-%d", prefix, n) }
