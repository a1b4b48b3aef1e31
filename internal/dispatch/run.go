package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// PanicError is what a handler's panic becomes.
type PanicError struct {
	// Value is what it panicked with, as text.
	Value string
	Stack []byte
}

func (p *PanicError) Error() string { return "handler panicked: " + p.Value }

// errGoexit is what runtime.Goexit in a handler becomes.
var errGoexit = errors.New("handler called runtime.Goexit")

// start gives the job a slot and runs it. The caller holds the mutex.
func (e *Engine) start(j *job, now time.Time) {
	e.occupySlot(j, now)
	e.crew.give(j, e.run)
}

// occupySlot gives the job its slot and its context. The caller holds the mutex.
func (e *Engine) occupySlot(j *job, now time.Time) {
	j.state, j.started = jobRunning, now
	j.ctx, j.cancel = context.WithCancelCause(e.services.handlers)
	if j.h.running == 0 {
		e.quiet--
	}
	j.h.running++
	e.running++
	if j.h.Transactional {
		j.inTx = true
		if e.cfg.SerialTransactions {
			e.txRunning = true
		}
	}
}

// run is a goroutine of handlers. After one it goes on with the next.
func (e *Engine) run(j *job) {
	for j != nil {
		if j = e.runOne(j); j == nil {
			j = e.rest()
		}
	}
}

func (e *Engine) runOne(j *job) (next *job) {
	// Whoever cancels first, the timer starts that gives the delivery up when
	// the handler does not return.
	stopWatch := context.AfterFunc(j.ctx, func() { e.watch(j) })
	e.tellStarted(j, stopWatch)
	return e.work(j, stopWatch)
}

// tellStarted tells the observer. One that ends this goroutine must not take the
// handler with it.
func (e *Engine) tellStarted(j *job, stopWatch func() bool) {
	told := false
	defer func() {
		if !told && recover() == nil {
			go func() { e.run(e.work(j, stopWatch)) }()
		}
	}()
	e.cfg.Observer.Started(j.h.Handler, &j.c)
	told = true
}

// work calls the handler. It returns a job that the caller is to run next, or nil.
func (e *Engine) work(j *job, stopWatch func() bool) (next *job) {
	var stopTimeout func() bool
	var err error
	finished := false
	// Deferred, because a handler may end this goroutine with runtime.Goexit.
	defer func() {
		ends := false
		if !finished {
			value := recover()
			err, ends = recovered(value), value == nil
		}
		cause := context.Cause(j.ctx)
		stopWatch()
		if stopTimeout != nil {
			stopTimeout()
		}
		j.cancel(nil)
		next = e.returned(j, err, cause)
		if ends && next != nil {
			go e.run(next)
		}
	}()
	if j.h.Timeout > 0 {
		stopTimeout = e.cfg.Clock.AfterFunc(j.h.Timeout, func() { j.cancel(ErrTimeout) })
	}
	if j.h.Transactional {
		err = e.runInTx(j)
	} else {
		err = j.h.Run(j.ctx, &j.c)
	}
	finished = true
	return next
}

// recovered is the error for what recover returned in a call that did not
// return.
func recovered(value any) error {
	if value == nil {
		return errGoexit
	}
	return &PanicError{Value: describe(value), Stack: debug.Stack()}
}

// runInTx runs a transactional handler, so that its writes and the completion
// commit together.
func (e *Engine) runInTx(j *job) error {
	if err := e.ensureLease(j.ctx, j); err != nil {
		return err
	}
	// What the handler itself returns says nothing of this lease, whatever it
	// wraps. A lease that is lost at the commit is found out by settling.
	lost := false
	err := j.h.Transact(j.ctx, func(ctx context.Context, tx store.Tx) error {
		lost = false
		e.setCommitting(j, false)
		if err := context.Cause(ctx); err != nil {
			return err // opening the transaction took so long that others may have the delivery
		}
		if err := protect(func() error { return j.h.Run(ctx, &j.c) }); err != nil {
			return err
		}
		e.setCommitting(j, true)
		err := e.cfg.Store.CompleteTx(ctx, tx, e.cfg.Owner, j.c.Lease, e.cfg.Clock.Now())
		lost = errors.Is(err, store.ErrLeaseLost)
		return err
	})
	if err != nil && lost {
		e.setLost(j)
	}
	return err
}

func (e *Engine) setLost(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j.lost = true
}

func (e *Engine) setCommitting(j *job, committing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j.committing = committing
}

// notStartedError says that the handler was not started, so no attempt is
// spent.
type notStartedError struct{ err error }

func (n *notStartedError) Error() string { return n.err.Error() }
func (n *notStartedError) Unwrap() error { return n.err }

// ensureLease extends the lease before a transactional handler starts, if it
// would not outlast it: it is not renewed while the handler runs.
func (e *Engine) ensureLease(ctx context.Context, j *job) error {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	enough := j.leaseUntil.Sub(now) >= j.h.Timeout+margin(e.cfg.Lease)
	e.mu.Unlock()
	if enough {
		return nil
	}
	ok, err := e.cfg.Store.Extend(ctx, e.cfg.Owner, []store.Lease{j.c.Lease}, now, e.cfg.Lease)
	if err != nil {
		return &notStartedError{fmt.Errorf("extend lease before a transactional handler: %w", err)}
	}
	if !holds(ok, 0) {
		e.setLost(j)
		return store.NewError("extend lease before a transactional handler", store.ErrLeaseLost, "", nil)
	}
	e.mu.Lock()
	j.leaseUntil = now.Add(e.cfg.Lease)
	e.mu.Unlock()
	return nil
}

// protect turns a panic or a Goexit of f into an error. f gets a goroutine of
// its own, so that a Goexit can't tear through an open transaction.
func protect(f func() error) error {
	result := make(chan error, 1)
	go func() {
		finished := false
		defer func() {
			if !finished {
				result <- recovered(recover())
			}
		}()
		err := f()
		finished = true
		result <- err
	}()
	return <-result
}

// tell calls f for each of n, in order, as an observer's hooks are user code
// that may end its goroutine with runtime.Goexit. All share one goroutine, and
// another one only goes on behind such a call.
func tell(n int, f func(i int)) {
	for i := 0; i < n; {
		_ = protect(func() error {
			for i < n {
				i++
				f(i - 1)
			}
			return nil
		})
	}
}

// describe turns what was panicked with into text; it may panic itself.
func describe(value any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T", value)
		}
	}()
	return fmt.Sprint(value)
}

// watch runs when a handler's context was cancelled while it was at work.
func (e *Engine) watch(j *job) {
	cause := context.Cause(j.ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if j.state != jobRunning || errors.Is(cause, ErrStopping) {
		return // Stop looks after its own
	}
	j.stopGrace = e.cfg.Clock.AfterFunc(e.cfg.Grace, func() { e.abandon(j, cause) })
}

// abandon ends the claim of a job whose handler ignores its cancelled context.
// Its slot and its key stay taken until the handler returns.
func (e *Engine) abandon(j *job, cause error) {
	err := fmt.Errorf("%w, and the handler still runs: it ignores its cancelled context", cause)
	v := judge(j, err)
	e.mu.Lock()
	// A commit under way, or the only write transaction that there can be, would
	// keep the store from ending the claim: then it ends when the handler returns.
	if j.state != jobRunning || (j.inTx && (j.committing || e.cfg.SerialTransactions)) {
		e.mu.Unlock()
		return
	}
	e.occupy(j)
	lost := j.lost
	switch {
	case lost:
		e.forget(j)
	case errors.Is(cause, ErrLeaseLost):
		e.giveBack(j, time.Time{})
	default:
		e.fail(j, err, v, e.cfg.Clock.Now().Sub(j.started))
	}
	e.mu.Unlock()
	if lost {
		e.cfg.Observer.LeaseLost(j.h.Handler, &j.c)
	}
}

// occupy marks a job whose claim ends while its handler runs on: its delivery
// and its key stay taken until it returns. The caller holds the mutex.
func (e *Engine) occupy(j *job) {
	j.abandoned = true
	for _, k := range j.keys() {
		e.taken[k]++
	}
}

// vacate ends what occupy began.
func (e *Engine) vacate(j *job) {
	for _, k := range j.keys() {
		if e.taken[k]--; e.taken[k] == 0 {
			delete(e.taken, k)
		}
	}
}

// returned is called when a handler has returned. What it returns has a slot, and is
// to be run by the caller.
func (e *Engine) returned(j *job, err, cause error) (next *job) {
	if err != nil && errors.Is(cause, ErrTimeout) {
		err = &timedOutError{err}
	}
	var v judgement
	if err != nil {
		v = judge(j, err)
	}
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	j.h.running--
	if j.h.running == 0 {
		e.quiet++
	}
	e.running--
	j.inTx = false
	if j.h.Transactional && e.cfg.SerialTransactions {
		e.txRunning = false
	}
	if j.stopGrace != nil {
		j.stopGrace()
	}
	e.soloReturned(j)
	lost, completed := false, false
	if j.abandoned {
		e.vacate(j)
	} else {
		lost, completed = e.conclude(j, err, cause, v, now)
	}
	ended := lost || completed
	if ended {
		e.leaving++
	} else {
		next = e.nextJob()
	}
	e.startNext()
	e.notify()
	e.mu.Unlock()
	kick(e.fetchKick)
	kick(e.settleKick)
	if !ended {
		return next
	}
	// Deferred, because the observer may end this goroutine.
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.leaving--
		e.forget(j) // now that the observer knows
		e.notify()
	}()
	if lost {
		e.cfg.Observer.LeaseLost(j.h.Handler, &j.c)
	} else {
		e.cfg.Observer.Finished(j.h.Handler, &j.c, Outcome{Kind: Succeeded, Took: now.Sub(j.started)})
	}
	return nil
}

// conclude decides what becomes of a job whose handler returned. It reports
// whether the lease was lost, and whether the delivery is completed already.
func (e *Engine) conclude(j *job, err, cause error, v judgement, now time.Time) (lost, completed bool) {
	took := now.Sub(j.started)
	switch {
	case err == nil:
		if !j.started.Before(j.h.pausedUntil) {
			j.h.outages = 0
		}
		j.h.pace.finished(now)
		if j.h.Transactional {
			if j.c.Followers {
				j.h.signal()
			}
			j.state = jobSettling
			return false, true
		}
		e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Complete}, Outcome{Kind: Succeeded, Took: took})
	case j.lost:
		j.state = jobSettling
		return true, false
	case errors.Is(cause, ErrStopping), errors.Is(cause, ErrLeaseLost):
		e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Release}, Outcome{Kind: Released, Err: err, Took: took})
	case v.notStarted:
		e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Release, DueAt: now.Add(e.cfg.Poll)},
			Outcome{Kind: Released, Err: err, Delay: e.cfg.Poll})
	default:
		e.fail(j, err, v, took)
	}
	return false, false
}

// fail settles a failed attempt as the handler's policy has decided.
func (e *Engine) fail(j *job, err error, v judgement, took time.Duration) {
	now := e.cfg.Clock.Now()
	switch v.Verdict {
	case Bury:
		e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Bury, Error: v.text, Hold: j.h.Hold},
			Outcome{Kind: Buried, Err: err, Took: took})
	case Unavailable:
		e.pause(j, now, v.Delay)
		e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Release},
			Outcome{Kind: Released, Err: err, Took: took, Delay: max(j.h.pausedUntil.Sub(now), 0)})
	default:
		due := now.Add(v.Delay)
		j.h.dueAt(due)
		e.settle(j, store.Settlement{Lease: j.c.Lease, Action: store.Reschedule, DueAt: due, Error: v.text},
			Outcome{Kind: Retried, Err: err, Took: took, Delay: v.Delay})
	}
}

// pause leaves a handler alone for a while, as something it needs is down. Those
// that started before the pause tell nothing new: a probe is what comes after.
// known is how long, or 0 for probing.
func (e *Engine) pause(j *job, now time.Time, known time.Duration) {
	h := j.h
	switch {
	case known > 0:
		if until := now.Add(known); until.After(h.pausedUntil) {
			h.pausedFor, h.pausedUntil = known, until
		}
	case h.outages == 0 || !j.started.Before(h.pausedUntil):
		h.outages++
		h.pausedFor = max(h.ProbeDelay(h.outages), time.Millisecond)
		h.pausedUntil = now.Add(h.pausedFor)
	}
	e.giveBackQueue(h)
	h.signal()
}

// margin is how long before its end a lease that can't be renewed is given up.
func margin(lease time.Duration) time.Duration { return lease / 10 }
