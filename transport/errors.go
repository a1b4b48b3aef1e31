package transport

import "errors"

// The classes of errors. Every error of a transport is, or wraps, an [*Error]
// that matches one of them with errors.Is.
var (
	// ErrConfiguration: the options, or the topology at the broker, are
	// unusable as they are; the text says what to change.
	ErrConfiguration = errors.New("configuration error")
	// ErrUnavailable: the broker can't be reached, the connection broke before
	// the answer, or the broker takes nothing from anybody at the moment
	// (memory or disk alarm, too few replicas).
	ErrUnavailable = errors.New("broker unavailable")
	// ErrTimeout: the context ended before the broker had answered. The cause
	// is the context's.
	ErrTimeout = errors.New("broker timeout")
	// ErrNotConnected: Connect was not called, or has failed.
	ErrNotConnected = errors.New("transport is not connected")
	// ErrClosed: the transport was closed, or the consumer was stopped.
	ErrClosed = errors.New("transport is closed")
	// ErrUnroutable: the destination does not exist, or nothing leads from
	// there to anybody. It may be put right at the broker.
	ErrUnroutable = errors.New("message is unroutable")
	// ErrNacked: the broker answered that it did not take this message; later
	// it may (a queue that is full).
	ErrNacked = errors.New("broker did not take the message")
	// ErrTooLarge: the broker takes no message of this size.
	ErrTooLarge = errors.New("message is too large")
	// ErrRefused: the broker refuses the message, or this sender at this
	// destination, and would do so again (not authorised, an invalid name, a
	// key or header that the protocol can't carry).
	ErrRefused = errors.New("message is refused")

	// ErrReject is for [Subscription.Receive] to return, usually inside an
	// [*Error] or another error that says why: the message is bad and is not
	// to be handed over again. The text of the error goes along with it, so it
	// must not hold what the message holds.
	ErrReject = errors.New("message rejected")
)

// Error is the error of a transport: the step that failed, its class, and the
// cause (the driver's error), which errors.As reaches.
type Error struct {
	// Op names the step in lower case, such as "send message".
	Op string
	// Class is one of the sentinels of this package.
	Class error
	// Detail is a sentence for the reader, without payloads, credentials or
	// connection strings. It may be empty.
	Detail string
	// Err is the cause, or nil.
	Err error
}

// NewError returns an *Error.
func NewError(op string, class error, detail string, cause error) *Error {
	return &Error{Op: op, Class: class, Detail: detail, Err: cause}
}

func (e *Error) Error() string {
	text := e.Op + ": " + e.Class.Error()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives errors.Is and errors.As the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// IsOutage reports whether the error says nothing about the message: the broker
// or the connection is what failed, so a sender waits and spends no attempt.
func IsOutage(err error) bool {
	return matches(err, ErrUnavailable, ErrTimeout, ErrNotConnected, ErrClosed)
}

// IsPermanent reports whether sending the same message again is pointless.
func IsPermanent(err error) bool {
	return matches(err, ErrTooLarge, ErrRefused)
}

func matches(err error, classes ...error) bool {
	for _, class := range classes {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
