package relaybus

import (
	"errors"
	"fmt"
	"time"
)

// RetryPolicy says when a failed delivery is tried again, and when it is dead.
// Fields that are 0 take the defaults.
type RetryPolicy struct {
	// MaxAttempts is how many attempts a delivery has in all before it is dead.
	// Default 10, at least 1.
	MaxAttempts int
	// Base is the backoff before the second attempt; it doubles with each
	// further one. Default 1 s.
	Base time.Duration
	// Cap bounds the backoff. Default 5 min.
	Cap time.Duration
	// NoJitter waits exactly the backoff. By default the wait is drawn evenly
	// between 0 and the backoff (full jitter).
	NoJitter bool
	// Delay, when set, replaces the backoff: it returns the wait before the
	// attempt that follows the given one, which counts from 1.
	Delay func(attempt int, err error) time.Duration
}

const (
	defaultMaxAttempts = 10
	defaultBackoffBase = time.Second
	defaultBackoffCap  = 5 * time.Minute
	// maxDelay bounds every delay: longer ones are mistakes.
	maxDelay = 10 * 365 * 24 * time.Hour
)

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = defaultMaxAttempts
	}
	if p.Base == 0 {
		p.Base = defaultBackoffBase
	}
	if p.Cap == 0 {
		p.Cap = max(defaultBackoffCap, p.Base)
	}
	return p
}

func (p RetryPolicy) validate(field string) error {
	var errs []error
	if p.MaxAttempts < 0 || p.MaxAttempts > 1_000_000 {
		errs = append(errs, fmt.Errorf("%s.MaxAttempts %d: must be from 1 to 1,000,000", field, p.MaxAttempts))
	}
	if p.Base < 0 || p.Base > maxDelay {
		errs = append(errs, fmt.Errorf("%s.Base %v: must be from 0 to 10 years", field, p.Base))
	}
	if p.Cap < 0 || p.Cap > maxDelay {
		errs = append(errs, fmt.Errorf("%s.Cap %v: must be from 0 to 10 years", field, p.Cap))
	} else if p.Cap > 0 && p.Cap < p.Base {
		errs = append(errs, fmt.Errorf("%s.Cap %v: must not be below Base", field, p.Cap))
	}
	return errors.Join(errs...)
}

// delay is the wait after the attempt failed. random returns a number in [0, 1).
func (p RetryPolicy) delay(attempt int, err error, random func() float64) time.Duration {
	if p.Delay != nil {
		return min(max(p.Delay(attempt, err), 0), maxDelay)
	}
	wait := p.Base
	for i := 1; i < attempt && wait < p.Cap; i++ {
		wait *= 2
	}
	wait = min(wait, p.Cap)
	if p.NoJitter {
		return wait
	}
	return time.Duration(random() * float64(wait))
}
