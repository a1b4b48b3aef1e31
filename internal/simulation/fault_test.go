package simulation_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// faultKind is what goes wrong with one call of the store.
type faultKind uint8

const (
	noFault faultKind = iota
	// refuses fails before the call.
	refuses
	// conflicts fails before the call, for a reason that passes.
	conflicts
	// hangs never answers, and the call is not made.
	hangs
	// slow answers late.
	slow
	// loses makes the call and loses the answer, and says so.
	loses
	// lies makes the call and says that it failed.
	lies
	// hangsAfter makes the call and never answers.
	hangsAfter
	// slowAfter makes the call and answers late.
	slowAfter
	// crashes ends the process before the call, crashesAfter after it.
	crashes
	crashesAfter
)

type fault struct {
	kind faultKind
	wait time.Duration
	// deaf: a slow call does not notice that its context has ended.
	deaf bool
}

// faults decides what goes wrong in one process, and does it.
type faults struct {
	process *process

	mu    sync.Mutex
	calls map[string]int
}

// draw decides about the next call of an operation.
func (f *faults) draw(op string) (fault, *rand.Rand) {
	p := f.process
	f.mu.Lock()
	f.calls[op]++
	n := f.calls[op]
	f.mu.Unlock()
	r := p.world.plan.random("fault", p.plan.owner, strconv.Itoa(p.incarnation), op, strconv.Itoa(n))
	if p.world.isCalm() || p.world.warming() || r.Float64() >= p.plan.rate {
		return fault{}, r
	}
	lease := p.world.plan.lease
	one := fault{
		kind: pickOne(r, refuses, refuses, conflicts, hangs, slow, slow, loses, loses, lies, hangsAfter, slowAfter),
		wait: time.Duration(r.Int64N(int64(lease / 10))),
	}
	switch r.IntN(12) {
	case 0:
		one.wait = lease + time.Duration(r.Int64N(int64(lease/2)))
	case 1, 2:
		one.wait = time.Duration(r.Int64N(int64(lease)))
	}
	one.deaf = p.world.plan.rude && r.IntN(2) == 0
	if r.IntN(30) == 0 && p.world.mayCrash() {
		one.kind = pickOne(r, crashes, crashesAfter)
	}
	return one, r
}

// do makes one call. applied says that effect was called and returned nil,
// whatever the error says.
func (f *faults) do(ctx context.Context, op string, effect func(ctx context.Context) error) (applied bool, err error) {
	p := f.process
	one, r := f.draw(op)
	if trace := p.world.trace; trace != nil {
		began := p.world.passed()
		defer func() {
			trace("%v to %v %s %s: fault %d, applied %v: %v", began, p.world.passed(), p, op, one.kind, applied, err)
		}()
	}
	if one.kind != noFault {
		defer p.fault()()
	}
	if err := f.unreachable(ctx, op, r); err != nil {
		return false, err
	}
	if !p.world.warming() {
		// The order of calls that come together is drawn, too.
		if err := f.wait(ctx, op, time.Duration(r.IntN(3))*time.Millisecond/2, false); err != nil {
			return false, err
		}
	}
	switch one.kind {
	case refuses:
		return false, store.NewError(op, store.ErrUnavailable, "fault", nil)
	case conflicts:
		return false, store.NewError(op, store.ErrConflict, "fault", nil)
	case hangs:
		return false, f.hang(ctx, op)
	case slow:
		if err := f.wait(ctx, op, one.wait, one.deaf); err != nil {
			return false, err
		}
	case crashes:
		p.crash()
		return false, gone(op)
	default:
	}
	if err := f.apply(ctx, effect); err != nil {
		return false, err
	}
	switch one.kind {
	case loses:
		return true, unknown(op, store.ErrUnavailable, nil)
	case lies:
		return true, store.NewError(op, store.ErrUnavailable, "fault", nil)
	case hangsAfter:
		return true, unknown(op, store.ErrTimeout, f.hang(ctx, op))
	case slowAfter:
		if err := f.wait(ctx, op, one.wait, one.deaf); err != nil {
			return true, unknown(op, store.ErrTimeout, err)
		}
	case crashesAfter:
		p.crash()
	default:
	}
	if p.isDead() {
		return true, gone(op)
	}
	return true, nil
}

// apply calls effect, in strict plans while no other process calls the store.
func (f *faults) apply(ctx context.Context, effect func(ctx context.Context) error) error {
	if w := f.process.world; w.plan.strict {
		w.calls.Lock()
		defer w.calls.Unlock()
	}
	if f.process.isDead() {
		return gone("call")
	}
	if effect == nil {
		return nil
	}
	return effect(ctx)
}

// unreachable is the error of a call in a time in which the store is cut.
func (f *faults) unreachable(ctx context.Context, op string, r *rand.Rand) error {
	p := f.process
	if p.isDead() {
		return gone(op)
	}
	now := p.world.passed()
	for _, c := range p.plan.cuts {
		if now < c.from || now >= c.to || p.world.isCalm() {
			continue
		}
		defer p.fault()()
		if !c.hangs {
			return store.NewError(op, store.ErrUnavailable, "cut", nil)
		}
		if r.IntN(2) == 0 {
			return f.hang(ctx, op)
		}
		if err := f.wait(ctx, op, c.to-now, false); err != nil {
			return err
		}
	}
	return nil
}

// hang waits until the context ends or the process dies.
func (f *faults) hang(ctx context.Context, op string) error {
	select {
	case <-ctx.Done():
		return store.NewError(op, store.ErrTimeout, "", context.Cause(ctx))
	case <-f.process.dead:
		return gone(op)
	}
}

// wait lets time pass, no longer than until the faults stop.
func (f *faults) wait(ctx context.Context, op string, d time.Duration, deaf bool) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	done := ctx.Done()
	if deaf {
		done = nil
	}
	select {
	case <-timer.C:
		return nil
	case <-f.process.world.calm:
		return nil
	case <-done:
		return store.NewError(op, store.ErrTimeout, "", context.Cause(ctx))
	case <-f.process.dead:
		return gone(op)
	}
}

// gone is the error of every call of a process that has crashed.
func gone(op string) error {
	return store.NewError(op, store.ErrUnavailable, "the process has crashed", nil)
}

// unknown is the error of a call of which nobody knows whether it was made.
func unknown(op string, class, cause error) error {
	return &store.Error{Op: op, Class: class, Also: store.ErrOutcomeUnknown, Err: cause}
}
