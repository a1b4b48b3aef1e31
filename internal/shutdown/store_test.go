package shutdown_test

import (
	"context"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// gate is a memory store whose calls can be held up before and after they have
// been made.
type gate struct {
	*memstore.Store

	mu     sync.Mutex
	before map[string]func(ctx context.Context) error
	after  map[string]func(ctx context.Context) error
	// cut holds up every call that has no entry of its own.
	cut func(ctx context.Context) error
}

func newGate(s *memstore.Store) *gate {
	return &gate{
		Store:  s,
		before: make(map[string]func(context.Context) error),
		after:  make(map[string]func(context.Context) error),
	}
}

// hold puts a function before the calls of an operation.
func (g *gate) hold(op string, f func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before[op] = f
}

// holdReply puts a function between a call and its answer.
func (g *gate) holdReply(op string, f func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.after[op] = f
}

// sever lets no call through any more.
func (g *gate) sever(f func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = f
}

func (g *gate) pass(ctx context.Context, op string, call func() error) error {
	g.mu.Lock()
	before, after := g.before[op], g.after[op]
	if before == nil {
		before = g.cut
	}
	g.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return err
		}
	}
	err := call()
	if err == nil && after != nil {
		return after(ctx)
	}
	return err
}

// hangs never answers.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return store.NewError("call", store.ErrTimeout, "", context.Cause(ctx))
}

func refuses(context.Context) error {
	return store.NewError("call", store.ErrUnavailable, "cut", nil)
}

func (g *gate) Setup(ctx context.Context) error {
	return g.pass(ctx, "setup", func() error { return g.Store.Setup(ctx) })
}

func (g *gate) Handlers(ctx context.Context) (entries []store.HandlerEntry, err error) {
	err = g.pass(ctx, "handlers", func() error {
		entries, err = g.Store.Handlers(ctx)
		return err
	})
	return entries, err
}

func (g *gate) Claim(ctx context.Context, r store.ClaimRequest) (result store.ClaimResult, err error) {
	err = g.pass(ctx, "claim", func() error {
		result, err = g.Store.Claim(ctx, r)
		return err
	})
	if err != nil {
		return store.ClaimResult{}, err
	}
	return result, nil
}

func (g *gate) Extend(
	ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration,
) (holds []bool, err error) {
	err = g.pass(ctx, "extend", func() error {
		holds, err = g.Store.Extend(ctx, owner, leases, now, lease)
		return err
	})
	return holds, err
}

func (g *gate) Settle(ctx context.Context, owner string, list []store.Settlement, now time.Time) (ok []bool, err error) {
	err = g.pass(ctx, "settle", func() error {
		ok, err = g.Store.Settle(ctx, owner, list, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ok, nil
}

func (g *gate) Relinquish(ctx context.Context, owner string, now time.Time) error {
	return g.pass(ctx, "relinquish", func() error { return g.Store.Relinquish(ctx, owner, now) })
}

func (g *gate) Transact(
	ctx context.Context, o store.TxOptions, fn func(ctx context.Context, tx store.Tx) error,
) error {
	return g.pass(ctx, "transact", func() error { return g.Store.Transact(ctx, o, fn) })
}
