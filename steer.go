package relaybus

import (
	"errors"
	"time"
)

// steering is an error that tells the bus what to do.
type steering struct {
	kind  steerKind
	delay time.Duration
	err   error
}

type steerKind uint8

const (
	steerPermanent steerKind = iota + 1
	steerRetryAfter
	steerUnavailable
)

func (s *steering) Error() string {
	if s.err != nil {
		return s.err.Error()
	}
	switch s.kind {
	case steerPermanent:
		return "permanent failure"
	case steerRetryAfter:
		return "retry asked for"
	default:
		return "unavailable"
	}
}

func (s *steering) Unwrap() error { return s.err }

// Permanent returns an error with which a handler gives up at once: the
// delivery is dead, whatever attempts are left.
func Permanent(err error) error { return &steering{kind: steerPermanent, err: err} }

// RetryAfter returns an error with which a handler chooses the delay until its
// next attempt. The attempt is charged: on the last one the delivery is dead.
// A negative delay means at once.
func RetryAfter(delay time.Duration, err error) error {
	return &steering{kind: steerRetryAfter, delay: min(max(delay, 0), maxDelay), err: err}
}

// Unavailable returns an error with which a handler says that something it
// needs is down. The attempt is not charged. This process then leaves the
// handler alone and probes with one delivery at a time, after 1 s at first and
// up to 1 min later, until one succeeds.
func Unavailable(err error) error { return &steering{kind: steerUnavailable, err: err} }

// steeringOf finds the outermost steering of an error.
func steeringOf(err error) (*steering, bool) {
	var s *steering
	ok := errors.As(err, &s)
	return s, ok
}

// IsPermanent reports whether a handler that returns the error gives up at
// once: see [Permanent].
func IsPermanent(err error) bool {
	s, ok := steeringOf(err)
	return ok && s.kind == steerPermanent
}

// IsUnavailable reports whether a handler that returns the error says that
// something it needs is down: see [Unavailable].
func IsUnavailable(err error) bool {
	s, ok := steeringOf(err)
	return ok && s.kind == steerUnavailable
}

// RetryDelay returns the delay that a handler which returns the error chooses,
// and whether it chooses one: see [RetryAfter].
func RetryDelay(err error) (delay time.Duration, ok bool) {
	s, ok := steeringOf(err)
	if !ok || s.kind != steerRetryAfter {
		return 0, false
	}
	return s.delay, true
}
