package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// maxSettle is the most claims that one call of the store ends.
const maxSettle = 1000

// ending is a claim that is to end.
type ending struct {
	job        *job
	settlement store.Settlement
	outcome    Outcome
}

// settleQueue holds endings until they go to the store together.
type settleQueue struct {
	list  []ending
	since time.Time
	// urgent: somebody waits, such as the followers of a key.
	urgent bool
	// busy: a call is under way with taken endings.
	taken int
}

func (q *settleQueue) len() int { return len(q.list) + q.taken }

// settle queues the end of a claim. The caller holds the mutex.
func (e *Engine) settle(j *job, s store.Settlement, o Outcome) {
	j.state = jobSettling
	if len(e.settling.list) == 0 {
		e.settling.since = e.cfg.Clock.Now()
	}
	e.settling.list = append(e.settling.list, ending{job: j, settlement: s, outcome: o})
	if j.c.Followers || s.Action != store.Complete {
		e.settling.urgent = true
	}
	kick(e.settleKick)
}

// forget drops a job whose lease is lost: there is nothing to settle.
func (e *Engine) forget(j *job) {
	if j.state == jobDone {
		return
	}
	j.state = jobDone
	e.ended++
	delete(e.jobs, j)
	close(j.done)
	e.notify()
}

// settleLoop sends endings to the store until the context ends.
func (e *Engine) settleLoop(ctx context.Context) {
	errs := 0
	for {
		batch, wait := e.nextBatch()
		if batch == nil {
			if ctx.Err() != nil {
				return
			}
			e.sleep(ctx, wait, e.settleKick)
			continue
		}
		if e.flush(ctx, batch) {
			errs = 0
			continue
		}
		errs++
		if ctx.Err() != nil {
			return
		}
		if e.isClosing() {
			e.sleep(ctx, min(backoff(errs, time.Second), max(e.cfg.Grace/10, time.Millisecond)), nil)
		} else {
			e.sleep(ctx, backoff(errs, min(time.Second, e.mostBackoff())), e.hurry)
		}
	}
}

// nextBatch returns what is to be settled now, or how long to wait.
func (e *Engine) nextBatch() ([]ending, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := &e.settling
	if len(q.list) == 0 {
		return nil, -1
	}
	age := e.cfg.Clock.Now().Sub(q.since)
	idle := e.running == e.hung() && e.queued == 0
	if !q.urgent && !idle && len(q.list) < e.cfg.BatchSize && age >= 0 && age < e.cfg.Linger {
		return nil, e.cfg.Linger - age
	}
	n := min(len(q.list), maxSettle)
	batch := append([]ending(nil), q.list[:n]...)
	q.list = append(q.list[:0], q.list[n:]...)
	q.taken = n
	q.urgent = len(q.list) > 0
	return batch, 0
}

// flush settles a batch. On an error it puts the batch back and returns false.
func (e *Engine) flush(ctx context.Context, batch []ending) bool {
	ok, err := e.send(ctx, batch)
	lost := errors.Is(err, store.ErrLeaseLost)
	if errors.Is(err, store.ErrInvalidToken) || errors.Is(err, store.ErrInvalidArgument) {
		// One that the store refuses must not take the others with it.
		ok, err = e.sendEach(ctx, batch)
	}
	e.mu.Lock()
	if err != nil && !lost {
		e.settling.taken = 0
		e.settling.list = append(batch, e.settling.list...)
		e.settling.urgent = true
		e.mu.Unlock()
		return false
	}
	for i, end := range batch {
		h := end.job.h
		if h == nil {
			continue
		}
		// What was given back or failed may be claimed again, and keys have
		// moved on.
		if end.settlement.Action != store.Complete || end.job.c.Followers || !holds(ok, i) {
			h.signal()
		}
	}
	e.mu.Unlock()
	kick(e.fetchKick)
	tell(len(batch), func(i int) {
		end := batch[i]
		switch {
		case end.job.h == nil:
		case holds(ok, i):
			e.cfg.Observer.Finished(end.job.h.Handler, &end.job.c, end.outcome)
		default:
			e.cfg.Observer.LeaseLost(end.job.h.Handler, &end.job.c)
		}
	})
	e.mu.Lock()
	for _, end := range batch {
		e.forget(end.job)
	}
	e.settling.taken = 0
	e.notify()
	e.mu.Unlock()
	kick(e.fetchKick)
	return true
}

// sendEach settles one by one, and takes one that is refused for lost.
func (e *Engine) sendEach(ctx context.Context, batch []ending) ([]bool, error) {
	ok := make([]bool, len(batch))
	for i := range batch {
		one, err := e.send(ctx, batch[i:i+1])
		switch {
		case err == nil:
			ok[i] = holds(one, 0)
		case errors.Is(err, store.ErrInvalidToken), errors.Is(err, store.ErrInvalidArgument), errors.Is(err, store.ErrLeaseLost):
		default:
			return nil, err // those before it report a lost lease when they are sent again
		}
	}
	return ok, nil
}

// send is one call of the store.
func (e *Engine) send(ctx context.Context, batch []ending) ([]bool, error) {
	list := make([]store.Settlement, len(batch))
	for i, end := range batch {
		list[i] = end.settlement
	}
	began := e.cfg.Clock.Now()
	callCtx, cancel := e.deadline(ctx, e.cfg.Lease)
	ok, err := e.cfg.Store.Settle(callCtx, e.cfg.Owner, list, began)
	cancel()
	took := e.cfg.Clock.Now().Sub(began)
	tell(1, func(int) { e.cfg.Observer.Settled(len(batch), took, err) })
	return ok, err
}

// holds reports whether a store said true of the i-th claim.
func holds(ok []bool, i int) bool { return i < len(ok) && ok[i] }

// drop forgets everything that waits to be settled, for a store that does not
// answer when the time to stop is over. It returns how many claims that leaves
// open.
func (e *Engine) drop() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.settling.len()
	for _, end := range e.settling.list {
		e.forget(end.job)
	}
	e.settling.list = nil
	return n
}

func exhausted(c store.Claimed) string {
	return fmt.Sprintf("gave up after %d attempts, %d of them ended because the worker died or stalled", c.Attempt-1, c.Lost)
}
