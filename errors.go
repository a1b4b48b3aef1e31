package relaybus

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/internal/dispatch"
	"github.com/relaybus-go/relaybus/store"
)

// Errors of publishing and of transactions.
var (
	// ErrNoTransaction: a publish found no transaction, neither in the context
	// nor through the resolver, and TransactionMode is Required.
	ErrNoTransaction = errors.New("no transaction")
	// ErrForeignTx: the transaction belongs to another database than the bus.
	ErrForeignTx = store.ErrForeignTx
	// ErrTxDone: the transaction has been committed or rolled back already.
	ErrTxDone = store.ErrTxDone
	// ErrAmbiguousTx: the context and the resolver (or the caller) name two
	// different open transactions of the bus's database.
	ErrAmbiguousTx = errors.New("two different transactions at once")
	// ErrRolledBack: a nested Transaction failed, so the outer one was rolled
	// back although its own function returned nil.
	ErrRolledBack = errors.New("transaction rolled back, as a nested one failed")
	// ErrOutcomeUnknown: the transaction may or may not have been committed.
	// Publishing the same event id again is safe.
	ErrOutcomeUnknown = store.ErrOutcomeUnknown
	// ErrValidation is matched by every *EventValidationError.
	ErrValidation = errors.New("event refused")
	// ErrUnknownEventType: Config.EventTypes is set and does not have the type.
	ErrUnknownEventType = errors.New("unknown event type")
)

// Errors of the lifecycle.
var (
	// ErrConfiguration is matched by every mistake in a Config, in handlers,
	// routes and subscriptions, and by a database that can't be used as it is.
	ErrConfiguration = store.ErrConfiguration
	// ErrAlreadyStarted: Start was called twice, or Subscribe after Start.
	ErrAlreadyStarted = errors.New("bus is already started")
	// ErrNotStarted: Stop was called before Start.
	ErrNotStarted = errors.New("bus is not started")
	// ErrStopped: the bus has been stopped, or its start has failed; it can't be
	// used again.
	ErrStopped = dispatch.ErrStopped
	// ErrHeldBack: Drain stopped while handlers that may have due deliveries
	// wait for their rate limit, or for something that was [Unavailable].
	ErrHeldBack = dispatch.ErrHeldBack
)

// Errors that come from the store: see package store for each.
var (
	ErrUnavailable     = store.ErrUnavailable
	ErrConflict        = store.ErrConflict
	ErrTimeout         = store.ErrTimeout
	ErrNotSetUp        = store.ErrNotSetUp
	ErrSchemaTooNew    = store.ErrSchemaTooNew
	ErrNotFound        = store.ErrNotFound
	ErrRunning         = store.ErrRunning
	ErrState           = store.ErrState
	ErrInvalidArgument = store.ErrInvalidArgument
)

// ErrClockSkew is the error of a start when the clock of this process is further
// off the database server's than a third of the lease. Leases are times, so a
// process whose clock is ahead would take over from workers that are alive. It
// matches [ErrConfiguration].
var ErrClockSkew = fmt.Errorf("%w: clock is off", ErrConfiguration)

// Causes with which a handler's context is cancelled (context.Cause).
var (
	// ErrHandlerTimeout: the handler ran into its timeout.
	ErrHandlerTimeout = dispatch.ErrTimeout
	// ErrLeaseLost: another worker may have taken the delivery over. It is also
	// the class of a store's refusal.
	ErrLeaseLost = store.ErrLeaseLost
	// ErrShutdown: the grace period of Stop is over.
	ErrShutdown = dispatch.ErrStopping
)

// PanicError is the error of an attempt whose handler panicked.
type PanicError = dispatch.PanicError

// HeldBackError is the error of a Drain that stopped while handlers wait: which,
// and until when. It matches [ErrHeldBack].
type HeldBackError = dispatch.HeldBackError

// StopError says what Stop had to leave behind: handlers that still run, and
// claims that could not be given back.
type StopError = dispatch.StopError

// EventValidationError says why an event was refused. Nothing was written, and
// the caller's transaction is as it was. It matches [ErrValidation] and holds
// no piece of the payload.
type EventValidationError struct {
	// Index is the position of the message in the publish.
	Index int
	// Type is the event type, if it has a valid name.
	Type string
	// Field is what is wrong: "type", "id", "key", "payload", "headers" …
	Field string
	// Reason says what is wrong with it.
	Reason string
	// Err is the cause, or nil.
	Err error
}

func (e *EventValidationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "event %d refused: ", e.Index)
	if e.Type != "" {
		fmt.Fprintf(&b, "%s: ", e.Type)
	}
	b.WriteString(e.Field)
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap makes it match ErrValidation and its cause.
func (e *EventValidationError) Unwrap() []error {
	if e.Err != nil {
		return []error{ErrValidation, e.Err}
	}
	return []error{ErrValidation}
}

// TransactionTimeoutError says that a transaction ran past its time budget. It
// was rolled back. It matches [ErrTimeout].
type TransactionTimeoutError struct {
	// Budget is the time that it had.
	Budget time.Duration
	// Err is the error that the transaction ended with, or nil.
	Err error
}

func (e *TransactionTimeoutError) Error() string {
	text := fmt.Sprintf("transaction rolled back: it ran past its budget of %v", e.Budget)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap makes it match ErrTimeout and its cause.
func (e *TransactionTimeoutError) Unwrap() []error {
	if e.Err != nil {
		return []error{ErrTimeout, e.Err}
	}
	return []error{ErrTimeout}
}

// DuplicateHandlerError says that two handlers have one id. It matches
// [ErrConfiguration].
type DuplicateHandlerError struct {
	ID string
	// First and Second are the places in the code, as file:line.
	First, Second string
}

func (e *DuplicateHandlerError) Error() string {
	return fmt.Sprintf("handler id %q is used twice: at %s and at %s", e.ID, e.First, e.Second)
}

// Unwrap makes it match ErrConfiguration.
func (*DuplicateHandlerError) Unwrap() error { return ErrConfiguration }

// Outcome is what became of a publish.
type Outcome uint8

const (
	// Committed is known to be durable.
	Committed Outcome = iota + 1
	// Staged will be durable once the caller's transaction commits.
	Staged
	// NotCommitted left nothing behind.
	NotCommitted
	// Unknown may or may not be durable.
	Unknown
)

// String returns the word for the outcome.
func (o Outcome) String() string {
	switch o {
	case Committed:
		return "committed"
	case Staged:
		return "staged"
	case NotCommitted:
		return "not committed"
	case Unknown:
		return "unknown"
	default:
		return "invalid"
	}
}

// OutcomeOf says what became of a transaction of the bus's own, from the error
// of [Bus.Transaction] or of a [Bus.Publish] outside a transaction.
func OutcomeOf(err error) Outcome {
	var rolledBack *rolledBackError
	switch {
	case err == nil:
		return Committed
	case errors.As(err, &rolledBack):
		return NotCommitted
	case errors.Is(err, ErrOutcomeUnknown):
		return Unknown
	default:
		return NotCommitted
	}
}

// rolledBackError is the error of a transaction's own function, which speaks of
// the unknown outcome of another transaction. This one was rolled back.
type rolledBackError struct{ err error }

func (r *rolledBackError) Error() string { return r.err.Error() }
func (r *rolledBackError) Unwrap() error { return r.err }

// configError is a mistake in the wiring.
func configError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfiguration, fmt.Errorf(format, args...))
}
