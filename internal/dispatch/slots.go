package dispatch

import (
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// reserve is how many free slots are left to quiet handlers: those that run
// nothing.
func (e *Engine) reserve(quiet int) int { return min(quiet, e.cfg.Concurrency/2) }

// startable is how many more deliveries of h could start now.
func (e *Engine) startable(h *handlerState, now time.Time) int {
	if e.closing || (e.exclusive(now) && !e.empty()) || h.paused(now) {
		return 0
	}
	return e.slots(h, now)
}

// slots is startable without regard to jobs that are to run alone.
func (e *Engine) slots(h *handlerState, now time.Time) int {
	free := e.cfg.Concurrency - e.running
	var n int
	if h.running > 0 {
		n = min(h.Limit-h.running, free-e.reserve(e.quiet))
	} else if n = min(h.Limit, free); n > 0 {
		// The first takes its reserved slot; the others leave those of the quiet.
		n = 1 + max(min(h.Limit-1, free-1-e.reserve(e.quiet-1)), 0)
	}
	if h.Transactional && e.cfg.SerialTransactions {
		n = min(n, 1)
		if e.txRunning {
			n = 0
		}
	}
	if h.outages > 0 {
		n = min(n, 1-h.running)
	}
	return h.rate.available(now, max(n, 0))
}

// want is how many deliveries of h are worth claiming now.
func (e *Engine) want(h *handlerState, now time.Time) int {
	if e.startable(h, now) == 0 && e.exclusive(now) || e.closing || h.paused(now) {
		return 0
	}
	n := e.slots(h, now)
	if h.outages == 0 && h.RateEvents == 0 {
		n += min(h.pace.ahead(now), 2*e.cfg.MostBatch)
	}
	return max(n-len(h.queue), 0)
}

// startNext starts queued jobs while there are slots. The caller holds the
// mutex.
func (e *Engine) startNext() {
	for j := e.nextJob(); j != nil; j = e.nextJob() {
		e.crew.give(j, e.run)
	}
}

// nextJob gives one job of the first handler, in turn, that has one and may, its
// slot, and returns it. The caller holds the mutex, and runs it.
func (e *Engine) nextJob() *job {
	if e.services == nil || e.queued == 0 {
		return nil
	}
	now := e.cfg.Clock.Now()
	for i := range e.handlers {
		h := e.handlers[(e.turn+i)%len(e.handlers)]
		if len(h.queue) == 0 || e.queuedStartable(h, now) <= 0 {
			continue
		}
		j := h.queue[0]
		h.queue[0] = nil
		h.queue = h.queue[1:]
		e.queued--
		h.rate.take()
		e.turn = (e.turn + i + 1) % len(e.handlers)
		e.occupySlot(j, now)
		return j
	}
	return nil
}

// queuedStartable is startable for jobs that are claimed already: these still
// start while room is made for one that is to run alone.
func (e *Engine) queuedStartable(h *handlerState, now time.Time) int {
	if e.closing || h.paused(now) || (e.solo.job != nil && e.exclusive(now)) {
		return 0
	}
	return e.slots(h, now)
}

// hung is how many slots are kept by handlers that ignore their cancelled
// context.
func (e *Engine) hung() int {
	n := 0
	for k, count := range e.taken {
		if k.eventID != "" {
			n += count
		}
	}
	return n
}

// plan returns the next claim, or how long to wait for one (negative: until
// something happens).
func (e *Engine) plan(now time.Time) (*store.ClaimRequest, []ask, time.Duration) {
	wait := time.Duration(-1)
	until := func(t time.Time) {
		if d := max(t.Sub(now), 0); wait < 0 || d < wait {
			wait = d
		}
	}
	// Whoever sets the clock back must not make the waits longer by that.
	if !now.Before(e.nextPoll) || e.nextPoll.Sub(now) > e.cfg.Poll {
		e.nextPoll = now.Add(e.cfg.Poll)
		for _, h := range e.handlers {
			h.signal()
		}
	}
	until(e.nextPoll)
	if e.claimAt.Sub(now) > e.mostBackoff() {
		e.claimAt = time.Time{}
	}
	if now.Before(e.claimAt) {
		until(e.claimAt)
		return nil, nil, wait
	}
	if e.settling.len() > 4*e.cfg.MostBatch+e.cfg.Concurrency {
		return nil, nil, wait
	}
	if e.exclusive(now) {
		until(e.solo.since.Add(e.cfg.Lease))
	}
	request := store.ClaimRequest{Owner: e.cfg.Owner, Now: now, Lease: e.cfg.Lease}
	var asked []ask
	// total is what is wanted, starving what of it could start at once. hungry
	// is for handlers that run nothing and find no free slot: a claim that is made
	// for others brings them something, so that their turn comes.
	total, starving, hungry := 0, 0, 0
	for i := range e.handlers {
		h := e.handlers[(e.askTurn+i)%len(e.handlers)]
		if !h.nextDue.IsZero() {
			if now.Before(h.nextDue) {
				until(h.nextDue)
			} else {
				h.signal()
				h.nextDue = time.Time{}
			}
		}
		if h.paused(now) {
			until(h.pausedUntil)
			continue
		}
		if !h.maybe {
			continue
		}
		if next := h.rate.next(now); !next.IsZero() {
			until(next)
		}
		n := e.want(h, now)
		switch {
		case n > 0:
			total += n
			if len(h.queue) == 0 {
				starving += e.startable(h, now)
			}
		case e.isHungry(h, now):
			n = 1
			hungry++
		default:
			continue
		}
		asked = append(asked, newAsk(h))
		request.Handlers = append(request.Handlers, store.HandlerLimit{Handler: storeHandler(h), Limit: n})
	}
	starving = min(starving, e.cfg.Concurrency-e.running)
	// What is claimed ahead for handlers that then hang must not keep the
	// others from starting.
	room := max(e.cfg.Concurrency+2*e.cfg.MostBatch-e.running-e.queued, starving)
	limit := min(total, e.cfg.MostBatch, room)
	if limit <= 0 || (starving <= 0 && limit < e.cfg.BatchSize) {
		return nil, nil, wait
	}
	request.Limit = e.soloLimit(min(total+hungry, e.cfg.MostBatch, room), now)
	return &request, asked, 0
}

// isHungry reports whether h runs nothing, has nothing waiting, and could start
// one if it had a slot, or its turn among the transactional ones.
func (e *Engine) isHungry(h *handlerState, now time.Time) bool {
	return !e.exclusive(now) && h.running == 0 && len(h.queue) == 0 && h.rate.available(now, 1) > 0
}

// mostBackoff is the longest wait after claims that failed.
func (e *Engine) mostBackoff() time.Duration { return max(e.cfg.Poll, 10*time.Millisecond) }

// Shed gives back what was claimed ahead for a handler that has been paused: of
// the claims that began before, nothing starts any more. What has a slot already
// goes on.
func (e *Engine) Shed(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.byID[id]
	if h == nil {
		return
	}
	h.sheds++
	e.giveBackQueue(h)
}

// giveBackQueue releases what a handler has claimed and not started. The caller
// holds the mutex.
func (e *Engine) giveBackQueue(h *handlerState) {
	for _, j := range h.queue {
		e.giveBack(j, time.Time{})
	}
	e.queued -= len(h.queue)
	h.queue = nil
}
