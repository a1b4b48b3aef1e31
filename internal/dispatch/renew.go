package dispatch

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// renewLoop extends the leases of everything claimed until the context ends.
func (e *Engine) renewLoop(ctx context.Context) {
	period := max(e.cfg.Lease/3, time.Millisecond)
	wait := period
	for {
		e.sleep(ctx, wait, nil)
		if ctx.Err() != nil {
			return
		}
		wait = period
		if !e.renew(ctx) {
			wait = max(period/8, time.Millisecond)
		}
	}
}

// renew extends all leases once. It returns false when the store failed.
func (e *Engine) renew(ctx context.Context) bool {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	jobs, leases, limit := e.renewable(now)
	e.mu.Unlock()
	if len(jobs) == 0 {
		return true
	}
	until := now.Add(e.cfg.Lease)
	callCtx, cancel := e.deadline(ctx, limit)
	ok, err := e.cfg.Store.Extend(callCtx, e.cfg.Owner, leases, now, e.cfg.Lease)
	cancel()
	if ctx.Err() != nil && err != nil {
		return true
	}
	took := e.cfg.Clock.Now().Sub(now)
	tell(1, func(int) { e.cfg.Observer.Extended(len(leases), took, err) })

	var told []*job
	e.mu.Lock()
	now = e.cfg.Clock.Now()
	for i, j := range jobs {
		switch {
		case j.state == jobDone || j.state == jobSettling:
		case err == nil && holds(ok, i):
			j.leaseUntil = until
		case err != nil && !e.expiring(j, now):
		case j.state == jobRunning:
			j.lost = err == nil
			j.cancel(ErrLeaseLost)
		case e.unqueue(j):
			if err != nil {
				e.giveBack(j, time.Time{})
				continue
			}
			e.forget(j)
			told = append(told, j)
		}
	}
	e.startNext()
	e.mu.Unlock()
	tell(len(told), func(i int) { e.cfg.Observer.LeaseLost(told[i].h.Handler, &told[i].c) })
	return err == nil
}

// renewable returns the jobs whose leases are to be extended, and how long that
// may take at most: their handlers must be cancelled before a lease runs out.
// It gives back what was claimed ahead and waits for its handler since the last
// time, so that others can have it. The caller holds the mutex.
func (e *Engine) renewable(now time.Time) (jobs []*job, leases []store.Lease, limit time.Duration) {
	limit = e.cfg.Lease / 3
	for j := range e.jobs {
		// A transactional delivery must outlive its handler on the lease it
		// started with: a renewal could conflict with its completion.
		if j.inTx || j.state == jobDone {
			continue
		}
		if now.Before(j.since) {
			j.since = now // the clock was set back
		}
		if j.state == jobQueued && now.Sub(j.since) >= e.cfg.Lease/3 {
			e.unqueue(j)
			e.giveBack(j, time.Time{})
		}
		jobs = append(jobs, j)
		leases = append(leases, j.c.Lease)
		limit = min(limit, j.leaseUntil.Sub(now)-margin(e.cfg.Lease))
	}
	return jobs, leases, max(limit, e.cfg.Lease/50)
}

// unqueue takes a job that has not started out of its queue.
func (e *Engine) unqueue(j *job) bool {
	if j.state != jobQueued {
		return false
	}
	for i, other := range j.h.queue {
		if other == j {
			j.h.queue = append(j.h.queue[:i:i], j.h.queue[i+1:]...)
			e.queued--
			return true
		}
	}
	return false
}

// deadline returns a context that ends after d on the engine's clock.
func (e *Engine) deadline(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := e.cfg.Clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
