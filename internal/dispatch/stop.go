package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/internal/service"
	"github.com/relaybus-go/relaybus/store"
)

// Start begins to claim and run deliveries. listen, when not nil, calls its
// function whenever another process may have made something due.
func (e *Engine) Start(ctx context.Context, listen func(ctx context.Context, signal func()) error) {
	e.acquire(ctx)
	ctx = store.WithoutTx(context.WithoutCancel(ctx))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started = true
	e.nextPoll = e.cfg.Clock.Now()
	e.fetch = service.Start(ctx, e.fetchLoop)
	if listen != nil {
		e.wake = service.Start(ctx, func(ctx context.Context) { e.wakeLoop(ctx, listen) })
	}
}

// steady is how long listening must have lasted to count as a success: a listener may
// signal as soon as it starts, and break right after that.
const steady = time.Second

// wakeLoop listens again whenever listening has ended, after a time that grows while
// it does not last.
func (e *Engine) wakeLoop(ctx context.Context, listen func(context.Context, func()) error) {
	errs := 0
	for ctx.Err() == nil {
		began := e.cfg.Clock.Now()
		if err := listen(ctx, e.Wake); err == nil || e.cfg.Clock.Now().Sub(began) >= steady {
			errs = 0
		}
		errs++
		e.sleep(ctx, backoff(errs, 30*time.Second), nil)
	}
}

// StopError says what Stop had to leave behind.
type StopError struct {
	// Running names the handlers whose functions still run.
	Running []string
	// Unsettled is how many claims could not be ended in the store; their
	// leases run out.
	Unsettled int
	// Err is the last error of the store, or nil.
	Err error
}

func (s *StopError) Error() string {
	var parts []string
	if len(s.Running) > 0 {
		parts = append(parts, "still running: "+strings.Join(s.Running, ", "))
	}
	if s.Unsettled > 0 {
		parts = append(parts, fmt.Sprintf("%d deliveries not given back", s.Unsettled))
	}
	text := "stop dispatcher"
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, "; ")
	}
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	return text
}

func (s *StopError) Unwrap() error { return s.Err }

// Stop ends dispatching for good: it stops claiming, gives running handlers the
// grace period, cancels what is left, gives everything back, and joins all
// goroutines but those of handlers that ignore their cancelled context. It
// returns earlier when the context ends.
func (e *Engine) Stop(ctx context.Context, grace time.Duration) error {
	e.mu.Lock()
	if !e.closing {
		close(e.hurry)
	}
	e.closing = true
	started := e.started
	e.mu.Unlock()
	e.acquire(ctx)
	e.fetch.Cancel()
	e.wake.Cancel()
	e.stopNudges()

	e.giveBackQueued()
	graceCtx, cancelGrace := beforeDeadline(ctx)
	defer cancelGrace()
	e.await(graceCtx, grace, e.idle)
	e.mu.Lock()
	e.services.cancel(ErrStopping)
	e.mu.Unlock()
	lastCtx := ctx
	if ctx.Err() != nil {
		lastCtx = context.WithoutCancel(ctx)
	}
	lastCtx, cancel := e.deadline(lastCtx, e.cfg.Grace)
	defer cancel()
	// Handlers that heed their context return at once; the rest is given back
	// without them. A call that does not answer must leave time to give the
	// lanes back, which ends all claims.
	third := left(ctx, e.cfg.Grace) / 3
	e.await(lastCtx, third, e.idle)
	running := e.leaveRunning()
	e.await(lastCtx, third, e.settled)
	unsettled := e.drop()
	err := e.relinquish(lastCtx)
	err = errors.Join(err, e.fetch.Join(lastCtx), e.wake.Join(lastCtx))
	e.mu.Lock()
	e.started = true // the lanes are given back
	e.mu.Unlock()
	e.release(lastCtx)
	if started {
		e.release(lastCtx)
	}
	if len(running) == 0 && unsettled == 0 && err == nil {
		return nil
	}
	return &StopError{Running: running, Unsettled: unsettled, Err: err}
}

// giveBackQueued releases what was claimed and not started.
func (e *Engine) giveBackQueued() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.handlers {
		e.giveBackQueue(h)
	}
}

// leaveRunning releases the deliveries whose handlers still run, and names them.
func (e *Engine) leaveRunning() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []string
	for j := range e.jobs {
		if j.state != jobRunning {
			continue
		}
		e.occupy(j)
		if j.inTx {
			// Its transaction is still open and may hold what a release would
			// wait for. Relinquish ends the claim, and so fences it.
			e.forget(j)
			continue
		}
		e.giveBack(j, time.Time{})
	}
	for _, h := range e.handlers {
		for range h.running {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// beforeDeadline returns a context that ends a little before ctx does, to leave
// time for giving back what is left.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	reserve := min(time.Until(deadline)/5, 2*time.Second)
	return context.WithDeadline(ctx, deadline.Add(-reserve))
}

// left is the time until the context's deadline, at most most. A context that
// has ended has no say any more.
func left(ctx context.Context, most time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || ctx.Err() != nil {
		return most
	}
	return min(time.Until(deadline), most)
}

// idle reports whether nothing is claimed, nothing runs and nothing waits to be
// settled.
func (e *Engine) idle() bool {
	return e.claiming == 0 && e.running == e.hung() && e.leaving == 0 && e.settled()
}

// settled reports whether nothing waits to be settled.
func (e *Engine) settled() bool { return e.settling.len() == 0 }

// await waits until the condition holds (it is asked under the mutex), d has
// passed, or the context ends.
func (e *Engine) await(ctx context.Context, d time.Duration, condition func() bool) {
	timeUp := make(chan struct{})
	stop := e.cfg.Clock.AfterFunc(d, func() { close(timeUp) })
	defer stop()
	for {
		e.mu.Lock()
		changed := e.change()
		done := condition()
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timeUp:
			return
		case <-ctx.Done():
			return
		}
	}
}
