package storetest

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func errorCases() []testCase {
	return []testCase{
		{name: "S15 no error repeats a payload", run: errorsHidePayloads},
		{name: "S15 a closed store says so", run: closedStore},
		{name: "S15 arguments that the contract does not allow", run: invalidArguments},
		{name: "S15 an error changes nothing and leaves the transaction usable", run: errorKeepsTransaction},
	}
}

const secret = "hunter2-canary"

func errorsHidePayloads(b *bed) {
	b.publish(b.event("e", "k", "h"))
	got := b.one("w", "h", "e")
	cancelled, cancel := context.WithCancel(b.ctx())
	cancel()
	e := b.event("secret", "k", "h")
	e.Payload, e.Headers = []byte(`"`+secret+`"`), []byte(`{"token":"`+secret+`"}`)
	_, err := publish(cancelled, b.s, b.now, e)
	texts := map[string]error{"publish": err}
	_, err = b.s.Append(b.ctx(), strangeTx{}, []store.NewEvent{e}, b.now)
	texts["append"] = err
	dying := bury(got, false)
	dying.Error = secret
	_, err = b.s.Settle(cancelled, "w", []store.Settlement{dying}, b.now)
	texts["settle"] = err
	texts["bury pending"] = b.s.BuryPending(b.ctx(), store.DeliveryID{EventID: "e", Handler: "h"}, secret, b.now)
	for name, err := range texts {
		if err == nil {
			b.t.Errorf("%s: no error", name)
		} else if strings.Contains(err.Error(), secret) {
			b.t.Errorf("%s: the error repeats what it should not: %v", name, err)
		}
	}
}

func closedStore(b *bed) {
	s := b.db.Open(b.t, Options{})
	closer, ok := s.(io.Closer)
	if !ok {
		b.t.Log("the store has no Close")
		return
	}
	if err := closer.Close(); err != nil {
		b.t.Fatalf("close: %v", err)
	}
	if err := closer.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
		b.t.Errorf("the second close: %v", err)
	}
	open := b.s
	b.s = s
	for name, call := range anyCalls(b, store.Claimed{}) {
		err := call(b.ctx())
		if name == "extend" || name == "settle" {
			// The zero token is refused first.
			b.wantError(err)
			continue
		}
		if problem := errorProblem(err, store.ErrClosed); problem != "" {
			b.t.Errorf("%s: %s", name, problem)
		}
	}
	b.s = open
	b.publish(b.event("e", "k", "h"))
	b.complete("w", b.one("w", "h", "e"))
}

func invalidArguments(b *bed) {
	b.publish(b.event("e", "k", "h"))
	c := b.one("w", "h", "e")
	_, err := b.s.Settle(b.ctx(), "w", []store.Settlement{{Lease: c.Lease}}, b.now)
	b.wantError(err, store.ErrInvalidArgument)
	_, err = b.s.Settle(b.ctx(), "w", []store.Settlement{{Lease: c.Lease, Action: 99}}, b.now)
	b.wantError(err, store.ErrInvalidArgument)
	for _, limit := range []int{0, -1} {
		_, err := b.s.Purge(b.ctx(), store.PurgeRequest{CompletedBefore: b.now, Limit: limit})
		b.wantError(err, store.ErrInvalidArgument)
	}
	for _, handlers := range [][]store.HandlerLimit{nil, {{Handler: store.Handler{ID: "h"}, Limit: 0}}, {{Handler: store.Handler{ID: "h"}, Limit: -1}}} {
		r := request("w", b.now, 5)
		r.Handlers = handlers
		if result, err := b.s.Claim(b.ctx(), r); err != nil {
			b.wantError(err, store.ErrInvalidArgument)
		} else if len(result.Deliveries) != 0 {
			b.t.Errorf("a claim that wants nothing brought %v", names(result.Deliveries))
		}
	}
	for _, limit := range []int{0, -5} {
		if result, err := b.s.Claim(b.ctx(), request("w", b.now, limit, "h")); err != nil {
			b.wantError(err, store.ErrInvalidArgument)
		} else if len(result.Deliveries) != 0 {
			b.t.Errorf("a claim of %d brought %v", limit, names(result.Deliveries))
		}
		if n, err := b.s.DropPending(b.ctx(), "h", limit, b.now); n != 0 {
			b.t.Errorf("a drop of %d dropped %d, %v", limit, n, err)
		}
		if n, err := b.s.RequeueWhere(b.ctx(), store.Filter{}, limit, b.now); n != 0 {
			b.t.Errorf("a requeue of %d requeued %d, %v", limit, n, err)
		}
	}
	b.complete("w", c)
}

// errorKeepsTransaction: after an append or a completion that was refused, the
// caller's transaction goes on, and nothing of the refused call is in it.
func errorKeepsTransaction(b *bed) {
	b.publish(b.event("e", "k", "h"))
	c := b.one("w", "h", "e")
	b.pass(term + time.Millisecond)
	b.one("heir", "h", "e")
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("before", "", "h")}, b.now); err != nil {
			return err
		}
		b.wantError(b.s.CompleteTx(ctx, tx, "w", c.Lease, b.now), store.ErrLeaseLost)
		_, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("after", "", "h")}, b.now)
		return err
	})
	// The store may insist that a lost lease rolls back, or leave it to the caller.
	if err != nil {
		b.wantError(err, store.ErrLeaseLost)
	}
	b.exists("before", err == nil)
	b.exists("after", err == nil)
}
