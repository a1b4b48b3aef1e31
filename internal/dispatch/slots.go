package dispatch

import (
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// reserve is how many free slots h leaves to handlers that run nothing.
func (e *Engine) reserve(h *handlerState) int {
	if h.running == 0 {
		return 0
	}
	quiet := 0
	for _, other := range e.handlers {
		if other != h && other.running == 0 {
			quiet++
		}
	}
	return min(quiet, e.cfg.Concurrency/2)
}

// startable is how many more deliveries of h could start now.
func (e *Engine) startable(h *handlerState, now time.Time) int {
	if e.closing || len(e.alone) > 0 || now.Before(h.pausedUntil) {
		return 0
	}
	free := e.cfg.Concurrency - e.running
	n := min(h.Limit-h.running, free-e.reserve(h))
	if n > 0 && h.running == 0 && len(e.handlers) > 1 {
		// The first takes its reserved slot; the others must leave those of the quiet.
		h.running++
		n = 1 + max(min(h.Limit-h.running, free-1-e.reserve(h)), 0)
		h.running--
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
	if e.closing || len(e.alone) > 0 || now.Before(h.pausedUntil) {
		return 0
	}
	n := e.startable(h, now)
	if h.outages == 0 && h.RateEvents == 0 {
		n += min(h.pace.ahead(now), e.cfg.BatchSize)
	}
	return max(n-len(h.queue), 0)
}

// startNext starts queued jobs while there are slots. The caller holds the
// mutex.
func (e *Engine) startNext() {
	if e.services == nil {
		return
	}
	now := e.cfg.Clock.Now()
	for e.startOne(now) {
	}
	if len(e.alone) > 0 && !e.closing && e.running == e.hung() && e.queued == 0 && e.alone[0].state == jobQueued {
		e.start(e.alone[0], now)
	}
}

// startOne starts one job of the first handler, in turn, that has one and may.
func (e *Engine) startOne(now time.Time) bool {
	for i := range e.handlers {
		h := e.handlers[(e.turn+i)%len(e.handlers)]
		if len(h.queue) == 0 || e.startableQueued(h, now) <= 0 {
			continue
		}
		j := h.queue[0]
		h.queue[0] = nil
		h.queue = h.queue[1:]
		e.queued--
		h.rate.take()
		e.turn = (e.turn + i + 1) % len(e.handlers)
		e.start(j, now)
		return true
	}
	return false
}

// startableQueued is startable for jobs that are claimed already: these still
// start while another job waits to run alone, as it waits for them.
func (e *Engine) startableQueued(h *handlerState, now time.Time) int {
	if len(e.alone) == 0 {
		return e.startable(h, now)
	}
	if e.alone[0].state == jobRunning {
		return 0
	}
	alone := e.alone
	e.alone = nil
	n := e.startable(h, now)
	e.alone = alone
	return n
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
func (e *Engine) plan(now time.Time) (*store.ClaimRequest, []*handlerState, time.Duration) {
	wait := time.Duration(-1)
	until := func(t time.Time) {
		if d := max(t.Sub(now), 0); wait < 0 || d < wait {
			wait = d
		}
	}
	if !now.Before(e.nextPoll) {
		e.nextPoll = now.Add(e.cfg.Poll)
		for _, h := range e.handlers {
			h.maybe = true
		}
	}
	until(e.nextPoll)
	if now.Before(e.claimAt) {
		until(e.claimAt)
		return nil, nil, wait
	}
	if e.settling.len() > 4*e.cfg.BatchSize+e.cfg.Concurrency {
		return nil, nil, wait
	}
	request := store.ClaimRequest{Owner: e.cfg.Owner, Now: now, Lease: e.cfg.Lease}
	var asked []*handlerState
	total, starving := 0, false
	for i := range e.handlers {
		h := e.handlers[(e.turn+i)%len(e.handlers)]
		if !h.nextDue.IsZero() {
			if now.Before(h.nextDue) {
				until(h.nextDue)
			} else {
				h.maybe, h.nextDue = true, time.Time{}
			}
		}
		if now.Before(h.pausedUntil) {
			until(h.pausedUntil)
			continue
		}
		if next := h.rate.next(now); !next.IsZero() && h.maybe {
			until(next)
		}
		if !h.maybe {
			continue
		}
		n := e.want(h, now)
		if n == 0 {
			continue
		}
		if len(h.queue) == 0 && e.startable(h, now) > 0 {
			starving = true
		}
		total += n
		asked = append(asked, h)
		request.Handlers = append(request.Handlers, store.HandlerLimit{Handler: storeHandler(h), Limit: n})
	}
	request.Limit = min(total, e.cfg.BatchSize, e.cfg.Concurrency+e.cfg.BatchSize-e.running-e.queued)
	if request.Limit <= 0 || (!starving && request.Limit < (e.cfg.BatchSize+1)/2) {
		return nil, nil, wait
	}
	return &request, asked, 0
}
