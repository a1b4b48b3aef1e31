package dispatch

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// fetchLoop claims until the context ends.
func (e *Engine) fetchLoop(ctx context.Context) {
	for ctx.Err() == nil {
		now := e.cfg.Clock.Now()
		e.mu.Lock()
		request, asked, wait := e.plan(now)
		wakes := e.wakes
		e.mu.Unlock()
		if request == nil {
			e.sleep(ctx, wait, e.fetchKick)
			continue
		}
		e.claim(ctx, *request, asked, wakes)
	}
}

// claim claims once and queues what came. It returns the jobs.
func (e *Engine) claim(ctx context.Context, r store.ClaimRequest, asked []*handlerState, wakes uint64) ([]*job, store.ClaimResult, error) {
	began := e.cfg.Clock.Now()
	result, err := e.cfg.Store.Claim(ctx, r)
	if err != nil && ctx.Err() != nil {
		return nil, result, err // we are stopping; Relinquish gives back what it may have claimed
	}
	e.cfg.Observer.Claimed(len(result.Deliveries), e.cfg.Clock.Now().Sub(began), err)

	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn++
	if err != nil {
		e.claimErrors++
		e.lastErr = err
		e.claimAt = e.cfg.Clock.Now().Add(backoff(e.claimErrors, max(e.cfg.Poll, 10*time.Millisecond)))
		return nil, result, err
	}
	e.claimErrors, e.lastErr = 0, nil
	for _, h := range asked {
		if e.wakes == wakes && !result.More {
			h.maybe = false
		}
		h.nextDue = result.NextDue
	}
	jobs := make([]*job, 0, len(result.Deliveries))
	for _, c := range result.Deliveries {
		if j := e.admit(c, r.Now.Add(r.Lease)); j != nil {
			jobs = append(jobs, j)
		}
	}
	e.startNext()
	return jobs, result, nil
}

// admit queues one claimed delivery, or gives it back.
func (e *Engine) admit(c store.Claimed, leaseUntil time.Time) *job {
	h := e.byID[c.Lease.Handler]
	j := &job{h: h, c: c, state: jobQueued, leaseUntil: leaseUntil, done: make(chan struct{})}
	now := e.cfg.Clock.Now()
	e.jobs[j] = struct{}{}
	if h == nil {
		// Only a store that claims more than it was asked for comes here.
		e.cfg.Observer.Unclaimable(&j.c)
		e.giveBack(j, now.Add(e.cfg.Poll))
		return j
	}
	for _, k := range j.keys() {
		if e.taken[k] > 0 {
			// An abandoned run of it, or of its key, still occupies this process.
			e.giveBack(j, now.Add(e.cfg.Grace))
			return j
		}
	}
	ended := c.Attempt - 1
	switch {
	case ended < h.MaxAttempts:
	case c.Lost == 0 || ended-c.Lost >= h.MaxAttempts || (c.Alone && ended > h.MaxAttempts):
		e.settle(j, store.Settlement{Lease: c.Lease, Action: store.Bury, Hold: h.Hold, Error: exhausted(c)},
			Outcome{Kind: Buried})
		return j
	case !c.Alone:
		// It reached its limit only because its workers died, and may have been
		// a bystander: once more, alone.
		e.settle(j, store.Settlement{Lease: c.Lease, Action: store.Release, Alone: true}, Outcome{Kind: Released})
		return j
	default:
		j.alone = true
		e.alone = append(e.alone, j)
		return j
	}
	h.queue = append(h.queue, j)
	e.queued++
	return j
}

func (e *Engine) giveBack(j *job, due time.Time) {
	e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Release, DueAt: due}, Outcome{Kind: Released})
}
