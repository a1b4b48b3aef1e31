package relaybus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/internal/dispatch"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/transport"
)

// Probing after Unavailable.
const (
	firstProbe = time.Second
	lastProbe  = time.Minute
)

// fastBatch is how many deliveries of fast handlers are claimed at once by default.
const fastBatch = 400

// engineLocked returns the engine, made from the handlers when there is none.
func (b *Bus) engineLocked() *dispatch.Engine {
	if b.engine != nil {
		return b.engine
	}
	linger := b.cfg.CompletionLinger
	if linger == Never {
		linger = 0
	}
	cfg := dispatch.Config{
		Store: b.store, Clock: b.cfg.Clock, Owner: b.cfg.Owner,
		Concurrency: b.cfg.Concurrency, BatchSize: b.cfg.BatchSize, MostBatch: b.cfg.BatchSize,
		Poll: b.cfg.PollInterval, Lease: b.cfg.LeaseDuration,
		Linger: linger, Grace: b.cfg.CancelGrace,
		SerialTransactions: b.features.SerialTransactions,
		Observer:           (*observer)(b),
	}
	if b.cfg.BatchSize == 0 {
		cfg.BatchSize, cfg.MostBatch = b.cfg.Concurrency, max(b.cfg.Concurrency, fastBatch)
	}
	for _, h := range b.handlers {
		cfg.Handlers = append(cfg.Handlers, b.dispatchHandler(h))
	}
	b.engine = dispatch.New(cfg)
	return b.engine
}

// errOtherType: a delivery came whose event type the handler does not take in
// this process. It is retried, so that a process that does gets it.
var errOtherType = errors.New("event type of another version of the handler")

func (b *Bus) dispatchHandler(h *Handler) *dispatch.Handler {
	policy := b.cfg.Retry
	if h.retry != nil {
		policy = h.retry.withDefaults()
	}
	run := h.wrapped
	timeout := b.handlerTimeout(h)
	return &dispatch.Handler{
		Handler:       store.Handler{ID: h.id, Aliases: b.catalog.aliasesOf(h)},
		Limit:         b.concurrency(h),
		RateEvents:    h.rateEvents,
		RatePer:       h.ratePer,
		Transactional: h.transactional,
		Timeout:       timeout,
		MaxAttempts:   policy.MaxAttempts,
		Hold:          h.holdKey,
		ProbeDelay:    probeDelay,
		Run: func(ctx context.Context, c *store.Claimed) error {
			e := rawEvent(h.id, c)
			if !matchesAny(h.types, e.Type) {
				// Published for another version of the handler, which may still run.
				return fmt.Errorf("%w: %s takes no events of type %s here", errOtherType, h.id, e.Type)
			}
			return run(context.WithValue(ctx, eventKey{}, e), e)
		},
		Decide: func(c *store.Claimed, err error) dispatch.Decision { return b.decide(policy, h.transactional, c, err) },
		Transact: func(ctx context.Context, fn func(context.Context, store.Tx) error) error {
			return b.transact(ctx, true, timeout, fn)
		},
	}
}

// wrap puts the middleware around a handler, the first one outermost.
func (b *Bus) wrap(h *Handler) error {
	h.wrapped = h.run
	for i, m := range slices.Backward(b.cfg.Middleware) {
		wrapped, err := wrapOnce(m, h.wrapped)
		if err != nil {
			return fmt.Errorf("middleware %d %w", i, err)
		}
		h.wrapped = wrapped
	}
	return nil
}

func wrapOnce(m Middleware, next HandlerFunc) (run HandlerFunc, err error) {
	defer func() {
		if value := recover(); value != nil {
			run, err = nil, fmt.Errorf("panicked with a %T", value)
		}
	}()
	if run = m(next); run == nil {
		return nil, errors.New("returned nil")
	}
	return run, nil
}

func (b *Bus) concurrency(h *Handler) int {
	if h.concurrency > 0 {
		return h.concurrency
	}
	return b.cfg.Concurrency
}

// handlerTimeout is the handler's own, or the default. A transactional handler
// has the time budget of transactions, or what the store allows by default.
func (b *Bus) handlerTimeout(h *Handler) time.Duration {
	if h.timeout > 0 {
		return h.timeout
	}
	if !h.transactional {
		return b.cfg.HandlerTimeout
	}
	timeout := b.cfg.TransactionTimeout
	if most := b.features.TransactionBudget; most > 0 {
		timeout = min(timeout, most)
	}
	if b.cfg.HandlerTimeout > 0 {
		timeout = min(timeout, b.cfg.HandlerTimeout)
	}
	return timeout
}

// decide says what follows from a handler's error. That the store was down spends
// no attempt of a transactional handler: it could not have done its work.
func (b *Bus) decide(p RetryPolicy, transactional bool, c *store.Claimed, err error) dispatch.Decision {
	last := c.Attempt >= p.MaxAttempts
	if s, ok := steeringOf(err); ok {
		switch {
		case s.kind == steerPermanent:
			return dispatch.Decision{Verdict: dispatch.Bury}
		case s.kind == steerUnavailable:
			return dispatch.Decision{Verdict: dispatch.Unavailable}
		case last:
			return dispatch.Decision{Verdict: dispatch.Bury}
		default:
			return dispatch.Decision{Verdict: dispatch.Retry, Delay: s.delay}
		}
	}
	switch {
	case transactional && errors.Is(err, ErrUnavailable):
		// Claims find out by themselves when the store is back, so no probing with
		// growing delays must keep the handler from going on then.
		return dispatch.Decision{Verdict: dispatch.Unavailable, Delay: b.cfg.PollInterval}
	case last:
		return dispatch.Decision{Verdict: dispatch.Bury}
	}
	return dispatch.Decision{Verdict: dispatch.Retry, Delay: p.delay(c.Attempt, err, b.cfg.Random)}
}

// probeDelay is the wait before a handler that reported an outage is probed
// again; outages counts the reports in a row.
func probeDelay(outages int) time.Duration {
	d := firstProbe
	for ; outages > 1 && d < lastProbe; outages-- {
		d *= 2
	}
	return min(d, lastProbe)
}

// steerSend makes of a transport's error what a route's handler returns.
func steerSend(err error) error {
	switch {
	case err == nil:
		return nil
	case transport.IsPermanent(err):
		return Permanent(err)
	case transport.IsOutage(err):
		return Unavailable(err)
	default:
		return err
	}
}

// observer passes the engine's steps on to hooks and the log.
type observer Bus

var _ dispatch.Observer = (*observer)(nil)

func (o *observer) Claimed(n int, took time.Duration, err error) {
	if err != nil {
		o.cfg.Logger.Warn("relaybus: claim failed", "error", err)
	}
	each(&o.hooks, func(h HookClaimed) { h.OnClaimed(Claimed{Deliveries: n, Took: took, Err: err}) })
}

func (o *observer) Started(h *dispatch.Handler, c *store.Claimed) {
	each(&o.hooks, func(hook HookStarted) { hook.OnStarted(attempt(h, c)) })
}

func (o *observer) Finished(h *dispatch.Handler, c *store.Claimed, out dispatch.Outcome) {
	a := attempt(h, c)
	a.Err, a.Took, a.Delay = out.Err, out.Took, out.Delay
	switch out.Kind {
	case dispatch.Succeeded:
		each(&o.hooks, func(hook HookSucceeded) { hook.OnSucceeded(a) })
	case dispatch.Retried:
		each(&o.hooks, func(hook HookRetried) { hook.OnRetried(a) })
	case dispatch.Buried:
		o.cfg.Logger.Error("relaybus: delivery is dead", "handler", a.Handler, "event", a.Event.ID,
			"type", a.Event.Type, "attempt", a.Number)
		each(&o.hooks, func(hook HookBuried) { hook.OnBuried(a) })
	case dispatch.Released:
		each(&o.hooks, func(hook HookReleased) { hook.OnReleased(a) })
	}
}

func (o *observer) LeaseLost(h *dispatch.Handler, c *store.Claimed) {
	o.cfg.Logger.Warn("relaybus: lease lost", "handler", h.ID, "event", c.Event.ID, "type", c.Event.Type)
	each(&o.hooks, func(hook HookLeaseLost) { hook.OnLeaseLost(attempt(h, c)) })
}

func (o *observer) Settled(n int, took time.Duration, err error) {
	if err != nil {
		o.cfg.Logger.Warn("relaybus: settling deliveries failed", "deliveries", n, "error", err)
	}
	each(&o.hooks, func(h HookSettled) { h.OnSettled(StoreCall{Deliveries: n, Took: took, Err: err}) })
}

func (o *observer) Extended(n int, took time.Duration, err error) {
	if err != nil {
		o.cfg.Logger.Warn("relaybus: renewing leases failed", "deliveries", n, "error", err)
	}
	each(&o.hooks, func(h HookRenewed) { h.OnRenewed(StoreCall{Deliveries: n, Took: took, Err: err}) })
}

func (o *observer) Unclaimable(c *store.Claimed) {
	o.cfg.Logger.Error("relaybus: the store handed out a delivery that was not asked for",
		"handler", c.Lease.Handler, "event", c.Event.ID)
}

func attempt(h *dispatch.Handler, c *store.Claimed) Attempt {
	return Attempt{
		Event: EventInfo{
			ID: c.Event.ID, Type: c.Event.Type, Key: c.Event.Key,
			CorrelationID: c.Event.CorrelationID, CausationID: c.Event.CausationID,
		},
		Handler: h.ID, Number: c.Attempt, DueAt: c.DueAt,
	}
}
