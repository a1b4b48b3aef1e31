package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// fetchLoop claims until the context ends.
func (e *Engine) fetchLoop(ctx context.Context) {
	for ctx.Err() == nil {
		now := e.cfg.Clock.Now()
		e.mu.Lock()
		e.startNext()
		request, asked, wait := e.plan(now)
		if request != nil {
			e.claiming++
		}
		e.mu.Unlock()
		if request == nil {
			e.sleep(ctx, wait, e.fetchKick)
			continue
		}
		_, _ = e.claim(ctx, *request, asked) // an error has been noted by then
	}
}

// claim claims once and queues what came. It returns the jobs. The caller has
// counted it in claiming.
func (e *Engine) claim(ctx context.Context, r store.ClaimRequest, asked []ask) ([]*job, error) {
	began := e.cfg.Clock.Now()
	callCtx, cancel := e.deadline(ctx, e.cfg.Lease)
	result, err := e.cfg.Store.Claim(callCtx, r)
	cancel()
	interrupted := err != nil && ctx.Err() != nil // Relinquish gives back what it may have claimed
	if !interrupted {
		took := e.cfg.Clock.Now().Sub(began)
		tell(1, func(int) { e.cfg.Observer.Claimed(len(result.Deliveries), took, err) })
	}

	e.mu.Lock()
	e.claiming--
	e.askTurn++
	var jobs []*job
	switch {
	case err == nil:
		jobs = e.take(r, asked, result)
	case !interrupted:
		e.claimErrors++
		e.lastErr = err
		e.claimAt = e.cfg.Clock.Now().Add(backoff(e.claimErrors, e.mostBackoff()))
	}
	e.notify()
	e.mu.Unlock()
	for _, j := range jobs {
		if j.h == nil {
			e.cfg.Observer.Unclaimable(&j.c)
		}
	}
	return jobs, err
}

// take takes over what a claim brought. The caller holds the mutex.
func (e *Engine) take(r store.ClaimRequest, asked []ask, result store.ClaimResult) []*job {
	e.claimErrors, e.lastErr = 0, nil
	for _, a := range asked {
		if a.h.signals == a.signals && !result.More {
			a.h.maybe = false
		}
		// A time that was due already says nothing new, and would be asked for
		// again at once.
		if result.NextDue.After(r.Now) {
			a.h.dueAt(result.NextDue)
		}
	}
	now := e.cfg.Clock.Now()
	if e.solo.job == nil && e.exclusive(now) && e.empty() && !slices.ContainsFunc(result.Deliveries, isAlone) {
		e.soloTried(len(result.Deliveries))
	}
	jobs := make([]*job, 0, len(result.Deliveries))
	for _, c := range result.Deliveries {
		jobs = append(jobs, e.admit(c, asked, r.Now.Add(r.Lease), len(result.Deliveries) == 1))
	}
	e.startNext()
	return jobs
}

// shed reports whether the handler was shed since the claim began.
func shed(h *handlerState, asked []ask) bool {
	return slices.ContainsFunc(asked, func(a ask) bool { return a.h == h && a.sheds != h.sheds })
}

func isAlone(c store.Claimed) bool { return c.Alone }

// admit queues one claimed delivery, or gives it back. only says that the claim,
// which asked for asked, brought nothing else.
func (e *Engine) admit(c store.Claimed, asked []ask, leaseUntil time.Time, only bool) *job {
	now := e.cfg.Clock.Now()
	h := e.byID[c.Lease.Handler]
	j := &job{h: h, c: c, state: jobQueued, since: now, leaseUntil: leaseUntil, done: make(chan struct{})}
	e.jobs[j] = struct{}{}
	switch {
	case h == nil:
		// Only a store that claims more than it was asked for comes here.
		e.giveBack(j, now.Add(e.cfg.Poll))
		return j
	case e.closing, h.paused(now), e.expiring(j, now), shed(h, asked):
		e.giveBack(j, time.Time{})
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
		h.queue = append(h.queue, j)
		e.queued++
	case c.Lost == 0 || ended-c.Lost >= h.MaxAttempts || (c.Alone && ended > h.MaxAttempts):
		e.settle(j, store.Settlement{Lease: c.Lease, Action: store.Bury, Hold: h.Hold, Error: exhausted(c)},
			Outcome{Kind: Buried})
	case !c.Alone:
		// It reached its limit only because its workers died, and may have been
		// a bystander: once more, alone.
		e.settle(j, store.Settlement{Lease: c.Lease, Action: store.Release, Alone: true}, Outcome{Kind: Released})
	case e.maySolo(h, only, now):
		e.solo.job, e.solo.since = j, now
		e.start(j, now)
	default:
		// It must not even be claimed while others run, or it would be a
		// bystander again.
		e.makeRoom(now)
		e.giveBack(j, time.Time{})
	}
	return j
}

// giveBack ends the claim of a job without a charge. It is due at due, or as
// before when that is zero.
func (e *Engine) giveBack(j *job, due time.Time) {
	e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Release, DueAt: due, Alone: j.c.Alone},
		Outcome{Kind: Released})
}

// expiring reports whether the lease ends too soon to go on with the job.
func (e *Engine) expiring(j *job, now time.Time) bool {
	return now.Add(margin(e.cfg.Lease)).After(j.leaseUntil)
}
