package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

var (
	// ErrStopped is returned by an engine that has been stopped, or is stopping.
	ErrStopped = errors.New("bus is stopped")
	// ErrHeldBack says that handlers that may have due deliveries must wait.
	ErrHeldBack = errors.New("handlers wait for their rate limit, or for something that was down")
)

// HeldBackError is the error of a drain that stopped while handlers that may
// have due deliveries must wait. It matches [ErrHeldBack].
type HeldBackError struct {
	// Handlers are the ids of those that wait.
	Handlers []string
	// Until is when the first of them may start again.
	Until time.Time
}

func (h *HeldBackError) Error() string {
	return ErrHeldBack.Error() + ": " + strings.Join(h.Handlers, ", ")
}

// Unwrap makes it match ErrHeldBack.
func (*HeldBackError) Unwrap() error { return ErrHeldBack }

// RunOnce claims one batch, runs it, and returns how many deliveries it claimed
// once the claims of all of them have ended. It works beside a started engine
// and without one.
func (e *Engine) RunOnce(ctx context.Context) (int, error) {
	if e.isClosing() {
		return 0, ErrStopped
	}
	e.acquire(ctx)
	defer e.releaseSoon(ctx)
	return e.runOnce(ctx)
}

func (e *Engine) isClosing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closing
}

func (e *Engine) runOnce(ctx context.Context) (int, error) {
	if e.isClosing() {
		return 0, ErrStopped
	}
	jobs, err := e.claimBatch(ctx)
	if err != nil {
		return 0, err
	}
	for _, j := range jobs {
		select {
		case <-j.done:
		case <-ctx.Done():
			return len(jobs), e.interrupted(ctx, jobs)
		}
	}
	return len(jobs), nil
}

// claimBatch claims for every handler that has a free slot.
func (e *Engine) claimBatch(ctx context.Context) ([]*job, error) {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	request := store.ClaimRequest{Owner: e.cfg.Owner, Now: now, Lease: e.cfg.Lease}
	var asked []ask
	total := 0
	for i := range e.handlers {
		h := e.handlers[(e.askTurn+i)%len(e.handlers)]
		n := e.startable(h, now) - len(h.queue)
		if n <= 0 {
			continue
		}
		total += n
		asked = append(asked, newAsk(h))
		request.Handlers = append(request.Handlers, store.HandlerLimit{Handler: storeHandler(h), Limit: n})
	}
	request.Limit = e.soloLimit(min(total, e.cfg.BatchSize, e.cfg.Concurrency-e.running-e.queued), now)
	if request.Limit > 0 {
		e.claiming++
	}
	e.mu.Unlock()
	if request.Limit <= 0 {
		return nil, nil
	}
	return e.claim(ctx, request, asked)
}

// interrupted gives back what has not started, cancels what runs, and waits for
// it, when the context of RunOnce has ended.
func (e *Engine) interrupted(ctx context.Context, jobs []*job) error {
	e.mu.Lock()
	for _, j := range jobs {
		switch {
		case e.unqueue(j):
			e.giveBack(j, time.Time{})
		case j.state == jobRunning:
			j.cancel(ErrStopping)
		}
	}
	e.mu.Unlock()
	waitCtx, cancel := e.deadline(context.WithoutCancel(ctx), e.cfg.Grace)
	defer cancel()
	left := 0
	for _, j := range jobs {
		select {
		case <-j.done:
		case <-waitCtx.Done():
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("run once: %d handlers ignore their cancelled context: %w", left, context.Cause(ctx))
	}
	return fmt.Errorf("run once: %w", context.Cause(ctx))
}

// Drain runs batches until nothing is due, what handlers publish meanwhile
// included. An error says why it stopped before that.
func (e *Engine) Drain(ctx context.Context) (int, error) {
	if e.isClosing() {
		return 0, ErrStopped
	}
	e.acquire(ctx)
	defer e.releaseSoon(ctx)
	total := 0
	for {
		e.mu.Lock()
		ended := e.ended
		e.mu.Unlock()
		n, err := e.runOnce(ctx)
		total += n
		if err != nil {
			return total, fmt.Errorf("drain stopped after %d deliveries: %w", total, err)
		}
		if n > 0 {
			continue
		}
		e.mu.Lock()
		// Observers are still being told of what has not left the settle queue.
		busy := len(e.jobs) > 0 || e.claiming > 0 || e.running > 0 || e.leaving > 0 || e.settling.len() > 0
		again := e.ended != ended
		changed := e.change()
		held := e.heldBack(e.cfg.Clock.Now())
		e.mu.Unlock()
		switch {
		case busy: // a started dispatcher, or another drain, has the rest
			select {
			case <-changed:
			case <-ctx.Done():
				return total, fmt.Errorf("drain stopped after %d deliveries: %w", total, context.Cause(ctx))
			}
		case again: // what ended since may have published
		case held != nil:
			return total, fmt.Errorf("drain stopped after %d deliveries: %w", total, held)
		default:
			return total, nil
		}
	}
}

// heldBack says which handlers may have due deliveries and may not start any
// now; nil when there are none.
func (e *Engine) heldBack(now time.Time) *HeldBackError {
	var held *HeldBackError
	for _, h := range e.handlers {
		until := h.rate.next(now)
		if h.paused(now) && h.pausedUntil.After(until) {
			until = h.pausedUntil
		}
		if !h.maybe || !now.Before(until) {
			continue
		}
		if held == nil {
			held = &HeldBackError{Until: until}
		}
		if until.Before(held.Until) {
			held.Until = until
		}
		held.Handlers = append(held.Handlers, h.ID)
	}
	return held
}
