package dispatch

import "time"

// solo is about the job that runs alone. A delivery of which the workers died
// too often may be what killed them, or have been a bystander. So it is run once
// more while its process runs nothing else: if the worker dies then, it was it.
//
// It is claimed only when nothing runs here. When it comes beside others it goes
// back, and the engine makes room: it claims nothing until it is empty, and then
// one by one. Making room and running alone last a lease each at most, as a slow
// handler must not stop all others; what finds no room is run beside them then.
type solo struct {
	// job runs alone, or is nil.
	job *job
	// since is when room was first wanted, or when the job started. It is zero
	// when there is no such job.
	since time.Time
	// tries counts the claims in the empty engine that did not bring it: another
	// process may have it by now.
	tries int
}

// exclusive reports whether nothing may be claimed beside what there is.
func (e *Engine) exclusive(now time.Time) bool {
	if now.Before(e.solo.since) {
		e.solo.since = now // the clock was set back
	}
	return !e.solo.since.IsZero() && now.Sub(e.solo.since) < e.cfg.Lease
}

// empty reports whether nothing runs, or is about to.
func (e *Engine) empty() bool {
	return e.running == e.hung() && e.queued == 0 && e.claiming == 0 && e.settled()
}

// maySolo reports whether a job of h that is to run alone may start now. only
// says that it was claimed without others.
func (e *Engine) maySolo(h *handlerState, only bool, now time.Time) bool {
	switch {
	case e.solo.job != nil, e.services == nil, e.running >= e.cfg.Concurrency, h.running >= h.Limit:
		return false
	case h.Transactional && e.cfg.SerialTransactions && e.txRunning:
		return false
	case only && e.empty():
		return true
	default:
		return e.overdue(now)
	}
}

// overdue reports whether room was wanted for a lease, and could not be made.
func (e *Engine) overdue(now time.Time) bool {
	age := now.Sub(e.solo.since)
	return !e.solo.since.IsZero() && age >= e.cfg.Lease && age < 2*e.cfg.Lease
}

// makeRoom begins to make room for a job that is to run alone.
func (e *Engine) makeRoom(now time.Time) {
	if !e.exclusive(now) && !e.overdue(now) {
		e.solo = solo{job: e.solo.job, since: now}
	}
}

// soloTried notes that a claim in the empty engine brought n deliveries, none of
// them to run alone.
func (e *Engine) soloTried(n int) {
	if e.solo.tries++; n == 0 || e.solo.tries > len(e.handlers) {
		e.solo = solo{}
	}
}

// soloLimit is the limit of a claim: one while room is made, so that what comes
// can run alone.
func (e *Engine) soloLimit(limit int, now time.Time) int {
	if e.exclusive(now) {
		return min(limit, 1)
	}
	return limit
}

// soloReturned notes that a job has returned.
func (e *Engine) soloReturned(j *job) {
	if e.solo.job == j {
		e.solo = solo{}
	}
}
