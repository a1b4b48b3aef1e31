package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/internal/service"
	"github.com/relaybus-go/relaybus/store"
)

// Engine runs handlers. The zero value is not usable; see [New].
type Engine struct {
	cfg Config

	mu       sync.Mutex
	handlers []*handlerState
	byID     map[string]*handlerState
	// turn rotates which handler starts first, askTurn which is asked for first.
	// With one for both, a claim per start could turn it back to the same one.
	turn, askTurn int
	// running counts occupied slots, queued the jobs that wait for one.
	running, queued int
	txRunning       bool
	// quiet counts the handlers that run nothing.
	quiet int
	// claiming counts the claims under way, leaving the handlers that have
	// returned and whose goroutines have not, ended the jobs whose claim ended.
	claiming, leaving int
	ended             uint64
	solo              solo
	// jobs are all whose claim has not ended.
	jobs map[*job]struct{}
	// taken are the deliveries and keys of abandoned handlers that still run.
	taken    map[key]int
	nextPoll time.Time
	// claimAt holds claims back after an error; claimErrors counts them.
	claimAt     time.Time
	claimErrors int
	settling    settleQueue
	// started: lanes are kept until Stop. closing: no new job starts.
	started, closing bool
	services         *services
	crew             crew
	lastErr          error
	// changed is closed when a job ends, a handler returns or a claim is over;
	// it is nil while nobody waits.
	changed chan struct{}

	fetchKick  chan struct{}
	settleKick chan struct{}
	// hurry is closed by Stop: settling waits no longer after an error.
	hurry chan struct{}

	// gate is held while users changes between 0 and 1, with everything that
	// follows from it. It is never taken under mu.
	gate sync.Mutex
	// users counts who needs settle and renew.
	users int

	fetch *service.Service
	wake  *service.Service
	// quick polls after publishes whose commit can't be seen.
	nudges nudges
}

// New returns an engine that does nothing yet.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg:        cfg,
		byID:       make(map[string]*handlerState),
		jobs:       make(map[*job]struct{}),
		taken:      make(map[key]int),
		fetchKick:  make(chan struct{}, 1),
		settleKick: make(chan struct{}, 1),
		hurry:      make(chan struct{}),
		crew:       newCrew(cfg.Concurrency),
	}
	e.quiet = len(cfg.Handlers)
	now := cfg.Clock.Now()
	for _, h := range cfg.Handlers {
		hs := &handlerState{Handler: h, aliases: h.Aliases, maybe: true, rate: newBucket(h.RateEvents, h.RatePer, now)}
		e.handlers = append(e.handlers, hs)
		e.byID[h.ID] = hs
		for _, alias := range h.Aliases {
			e.byID[alias] = hs
		}
	}
	return e
}

// Wake says that something may be due now.
func (e *Engine) Wake() {
	e.mu.Lock()
	e.wakeLocked()
	e.mu.Unlock()
}

func (e *Engine) wakeLocked() {
	for _, h := range e.handlers {
		h.signal()
	}
	kick(e.fetchKick)
}

// SetAliases replaces the further ids of a handler, which other processes may
// have declared for it since.
func (e *Engine) SetAliases(id string, aliases []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.byID[id]
	if h == nil || h.ID != id {
		return
	}
	h.aliases = aliases
	for _, alias := range aliases {
		if _, known := e.byID[alias]; !known {
			e.byID[alias] = h
		}
	}
}

// LastError is the last error of a claim, if the claims since then failed, too.
func (e *Engine) LastError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastErr
}

// notify tells those that wait for a change. The caller holds the mutex.
func (e *Engine) notify() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// change is closed at the next change. The caller holds the mutex.
func (e *Engine) change() <-chan struct{} {
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

// kick signals a channel of capacity 1.
func kick(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// sleep waits until d has passed on the engine's clock, the channel is kicked
// or the context ends. d < 0 waits without a limit.
func (e *Engine) sleep(ctx context.Context, d time.Duration, kicked <-chan struct{}) {
	var timer chan struct{}
	if d >= 0 {
		timer = make(chan struct{})
		stop := e.cfg.Clock.AfterFunc(d, func() { close(timer) })
		defer stop()
	}
	select {
	case <-kicked:
	case <-timer:
	case <-ctx.Done():
	}
}

// services are the goroutines that every way of running handlers needs.
type services struct {
	settle, renew *service.Service
	// handlers is the context that handlers' contexts derive from.
	handlers context.Context //nolint:containedctx // it outlives the call that created it: handlers run under it until cancel
	cancel   context.CancelCauseFunc
	// resting has the goroutines that wait for a handler to run.
	resting sync.WaitGroup
}

// acquire starts settle and renew for the first user.
func (e *Engine) acquire(ctx context.Context) {
	e.gate.Lock()
	defer e.gate.Unlock()
	e.users++
	if e.users > 1 {
		return
	}
	// Handlers must not find the transaction of whoever happens to drain.
	ctx = store.WithoutTx(context.WithoutCancel(ctx))
	handlers, cancel := context.WithCancelCause(ctx)
	s := &services{handlers: handlers, cancel: cancel}
	s.settle = service.Start(ctx, e.settleLoop)
	s.renew = service.Start(ctx, e.renewLoop)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.services = s
}

// releaseSoon is release with the time of a cancel grace.
func (e *Engine) releaseSoon(ctx context.Context) {
	ctx, cancel := e.deadline(context.WithoutCancel(ctx), e.cfg.Grace)
	defer cancel()
	e.release(ctx)
}

// release stops them after the last. What does not return before the context
// ends is left behind: a call of the store that ignores its context.
func (e *Engine) release(ctx context.Context) {
	e.gate.Lock()
	defer e.gate.Unlock()
	e.users--
	if e.users > 0 {
		return
	}
	e.mu.Lock()
	s := e.services
	e.services = nil
	started := e.started
	e.mu.Unlock()
	s.renew.Cancel()
	s.settle.Cancel()
	s.cancel(ErrStopping)
	s.resting.Wait()
	late := errors.Join(s.renew.Join(ctx), s.settle.Join(ctx))
	if started || late != nil {
		return
	}
	// Nobody renews the leases from here on. So that others need not wait for
	// them to run out, they are given back.
	e.disown()
	if err := e.relinquish(ctx); err != nil {
		return // they run out
	}
}

// relinquish gives the lanes back. It returns when the context ends, also if
// the store does not.
func (e *Engine) relinquish(ctx context.Context) error {
	result := make(chan error, 1)
	go func() { result <- e.cfg.Store.Relinquish(ctx, e.cfg.Owner, e.cfg.Clock.Now()) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return store.NewError("give lanes back", store.ErrTimeout, "", context.Cause(ctx))
	}
}

// disown forgets the claims that are left.
func (e *Engine) disown() {
	e.drop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for j := range e.jobs {
		if j.state == jobRunning {
			e.occupy(j)
		}
		e.unqueue(j)
		e.forget(j)
	}
}

// backoff is 10 ms doubled with each error in a row, at most most.
func backoff(errs int, most time.Duration) time.Duration {
	d := 10 * time.Millisecond
	for ; errs > 1 && d < most; errs-- {
		d *= 2
	}
	return min(d, most)
}

func storeHandler(h *handlerState) store.Handler {
	return store.Handler{ID: h.ID, Aliases: h.aliases}
}
