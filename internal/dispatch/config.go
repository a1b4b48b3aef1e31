package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Causes with which a handler's context is cancelled.
var (
	// ErrTimeout: the handler ran into its timeout.
	ErrTimeout = errors.New("handler timeout")
	// ErrLeaseLost: another worker may have taken the delivery over.
	ErrLeaseLost = store.ErrLeaseLost
	// ErrStopping: the shutdown grace period is over.
	ErrStopping = errors.New("bus is stopping")
)

// Clock is the time of an engine.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own after d, unless stopped.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Store is what an engine asks of a store.
type Store interface {
	store.Claimer
	store.Settler
	store.Transactor
}

// Config configures an engine. The bus has filled in and checked everything.
type Config struct {
	Store Store
	Clock Clock
	// Owner is the worker's name in the store.
	Owner       string
	Concurrency int
	// BatchSize is how many deliveries are worth a claim of their own, and
	// MostBatch the most that one takes, which is as many or more.
	BatchSize, MostBatch int
	Poll                 time.Duration
	Lease                time.Duration
	// Linger is how long a completion waits for others to share its call.
	Linger time.Duration
	// Grace is how long a handler may go on after its context was cancelled
	// before its delivery is given back without it.
	Grace time.Duration
	// SerialTransactions: transactional handlers run one at a time.
	SerialTransactions bool
	Observer           Observer
	Handlers           []*Handler
}

// Handler is a handler as the engine sees it.
type Handler struct {
	store.Handler
	// Limit is how many of its deliveries run at once.
	Limit int
	// RateEvents per RatePer may start; RateEvents 0 stands for no limit.
	RateEvents int
	RatePer    time.Duration
	// Transactional: Run is called inside a transaction that also completes
	// the delivery.
	Transactional bool
	// Timeout cancels the context of Run; 0 stands for none. A transactional
	// handler always has one.
	Timeout time.Duration
	// MaxAttempts is the limit from which on a delivery is dead.
	MaxAttempts int
	// Hold keeps the key of a dead delivery blocked.
	Hold bool
	// Run handles the delivery. Panics are recovered by the engine.
	Run func(ctx context.Context, c *store.Claimed) error
	// ProbeDelay is the wait after the outages-th Unavailable in a row.
	ProbeDelay func(outages int) time.Duration
	// Decide says what follows from an error of Run.
	Decide func(c *store.Claimed, err error) Decision
	// Transact runs fn in a transaction for a transactional handler, with the
	// bus's budget and hooks around it.
	Transact func(ctx context.Context, fn func(ctx context.Context, tx store.Tx) error) error
}

// Verdict is what follows from a failed attempt.
type Verdict uint8

const (
	// Retry reschedules after Decision.Delay.
	Retry Verdict = iota + 1
	// Bury gives up.
	Bury
	// Unavailable releases without a charge, and pauses the handler: for
	// Decision.Delay, or when that is 0 for as long as ProbeDelay says.
	Unavailable
)

// Decision is a verdict with its delay.
type Decision struct {
	Verdict Verdict
	Delay   time.Duration
}

// Observer is told of every step. It is called without locks, and must not
// panic.
type Observer interface {
	Claimed(n int, took time.Duration, err error)
	Started(h *Handler, c *store.Claimed)
	Finished(h *Handler, c *store.Claimed, o Outcome)
	LeaseLost(h *Handler, c *store.Claimed)
	Settled(n int, took time.Duration, err error)
	Extended(n int, took time.Duration, err error)
	// Unclaimable: a delivery came for a handler that is not registered.
	Unclaimable(c *store.Claimed)
}

// OutcomeKind is how an attempt ended.
type OutcomeKind uint8

const (
	// Succeeded says that the delivery is completed.
	Succeeded OutcomeKind = iota + 1
	// Retried says that it is due again later.
	Retried
	// Buried says that it is dead.
	Buried
	// Released says that it was given back without a charge.
	Released
)

// Outcome is how an attempt ended, known to be recorded in the store.
type Outcome struct {
	Kind OutcomeKind
	// Err is what the handler returned, or nil.
	Err error
	// Took is how long the handler ran; 0 when it was not started.
	Took time.Duration
	// Delay is how long until the next attempt.
	Delay time.Duration
}
