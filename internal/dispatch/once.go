package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/relaybus-go/relaybus/store"
)

// ErrStopped: the engine has been stopped.
var ErrStopped = errors.New("dispatcher is stopped")

// RunOnce claims one batch, runs it, and returns how many deliveries it claimed
// once the claims of all of them have ended. It works beside a started engine
// and without one.
func (e *Engine) RunOnce(ctx context.Context) (int, error) {
	e.mu.Lock()
	closing := e.closing
	e.mu.Unlock()
	if closing {
		return 0, ErrStopped
	}
	e.acquire(ctx)
	defer e.release()
	jobs, _, err := e.claimBatch(ctx)
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
func (e *Engine) claimBatch(ctx context.Context) ([]*job, store.ClaimResult, error) {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	request := store.ClaimRequest{Owner: e.cfg.Owner, Now: now, Lease: e.cfg.Lease}
	var asked []*handlerState
	total := 0
	for _, h := range e.handlers {
		n := e.startable(h, now) - len(h.queue)
		if n <= 0 {
			continue
		}
		total += n
		asked = append(asked, h)
		request.Handlers = append(request.Handlers, store.HandlerLimit{Handler: storeHandler(h), Limit: n})
	}
	request.Limit = min(total, e.cfg.BatchSize, e.cfg.Concurrency-e.running-e.queued)
	wakes := e.wakes
	e.mu.Unlock()
	if request.Limit <= 0 {
		return nil, store.ClaimResult{}, nil
	}
	return e.claim(ctx, request, asked, wakes)
}

// interrupted gives back what has not started, cancels what runs, and waits for
// it, when the context of RunOnce has ended.
func (e *Engine) interrupted(ctx context.Context, jobs []*job) error {
	e.mu.Lock()
	for _, j := range jobs {
		switch {
		case e.unqueue(j):
			e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Release}, Outcome{Kind: Released})
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
	total := 0
	for {
		n, err := e.RunOnce(ctx)
		total += n
		if err != nil {
			return total, fmt.Errorf("drain stopped after %d deliveries: %w", total, err)
		}
		if n > 0 {
			continue
		}
		e.mu.Lock()
		changed, busy := e.changed, len(e.jobs) > 0
		e.mu.Unlock()
		if !busy {
			return total, nil
		}
		// A started dispatcher, or another drain, has the rest.
		select {
		case <-changed:
		case <-ctx.Done():
			return total, fmt.Errorf("drain stopped after %d deliveries: %w", total, context.Cause(ctx))
		}
	}
}
