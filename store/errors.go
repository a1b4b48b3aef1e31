package store

import (
	"errors"
)

// The classes of errors. Every error of a store is a [*Error] that matches at
// least one of them with errors.Is.
var (
	// ErrConfiguration: the database or the store's options are unusable as
	// they are; trying again won't help. The text says what to do.
	ErrConfiguration = errors.New("configuration error")
	// ErrSchemaTooNew: the database was set up by a newer version of the
	// library. It comes with [ErrConfiguration].
	ErrSchemaTooNew = errors.New("schema is newer than this library")
	// ErrNotSetUp: the database lacks the store's schema; call Setup. It comes
	// with [ErrConfiguration].
	ErrNotSetUp = errors.New("store is not set up")
	// ErrUnavailable: the database can't be reached, is locked by someone
	// else, read-only, full, or damaged. Trying again later may help.
	ErrUnavailable = errors.New("store unavailable")
	// ErrConflict: the database refused a transaction because of a concurrent
	// one. Running the whole transaction again may succeed. Stores retry their
	// own transactions; it is passed through for those of callers.
	ErrConflict = errors.New("transaction conflict")
	// ErrTimeout: the context's deadline passed before the step was done.
	ErrTimeout = errors.New("store timeout")
	// ErrOutcomeUnknown: the transaction may or may not have been committed.
	// It comes with another class that says why.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrTxDone: the transaction has been committed or rolled back already.
	ErrTxDone = errors.New("transaction is finished")
	// ErrForeignTx: the transaction belongs to another database.
	ErrForeignTx = errors.New("transaction of another database")
	// ErrLeaseLost: the delivery is no longer claimed by this lease; nothing
	// was changed.
	ErrLeaseLost = errors.New("lease lost")
	// ErrInvalidToken: a lease token that this store cannot have issued.
	ErrInvalidToken = errors.New("invalid lease token")
	// ErrNotFound: no such event, delivery or handler.
	ErrNotFound = errors.New("not found")
	// ErrRunning: the delivery is claimed by a worker right now, so an
	// operator's change of it is refused.
	ErrRunning = errors.New("delivery is running")
	// ErrState: the delivery is not in a state in which the operation makes
	// sense (requeue of one that is not dead, skip of one that holds no key).
	ErrState = errors.New("delivery is in another state")
	// ErrInvalidArgument: a value that the contract does not allow, or that the
	// database refuses, as does a constraint at the commit.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("store is closed")
)

// Error is the error of a store: the step that failed, its classes, and the
// cause (the driver's error), which errors.As reaches.
type Error struct {
	// Op names the step in lower case, such as "claim deliveries".
	Op string
	// Class is one of the sentinels of this package.
	Class error
	// Also is a second class, or nil: [ErrOutcomeUnknown] beside the reason,
	// [ErrSchemaTooNew] beside [ErrConfiguration].
	Also error
	// Detail is a sentence for the reader, without payloads, credentials or
	// connection strings. It may be empty.
	Detail string
	// Err is the cause, or nil.
	Err error
}

// NewError returns a *Error of one class.
func NewError(op string, class error, detail string, cause error) *Error {
	return &Error{Op: op, Class: class, Detail: detail, Err: cause}
}

func (e *Error) Error() string {
	text := e.Op + ": " + e.Class.Error()
	if e.Also != nil {
		text += ": " + e.Also.Error()
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives errors.Is and errors.As the classes and the cause.
func (e *Error) Unwrap() []error {
	chain := make([]error, 0, 3)
	for _, err := range []error{e.Class, e.Also, e.Err} {
		if err != nil {
			chain = append(chain, err)
		}
	}
	return chain
}
