package dispatch

import (
	"errors"
	"time"
)

// judgement is what is to be known of a handler's error. It is made without
// the mutex and in a goroutine of its own, as the error and the retry policy
// are the user's code: they may panic, end their goroutine, or call the bus.
type judgement struct {
	Decision
	// text is kept with the delivery.
	text       string
	notStarted bool
}

// strayDelay is the wait after an error whose handling fails itself.
const strayDelay = time.Minute

func judge(j *job, err error) judgement {
	var v judgement
	if protect(func() error {
		v.text = Text(err)
		var n *notStartedError
		v.notStarted = errors.As(err, &n)
		v.Decision = j.h.Decide(&j.c, err)
		return nil
	}) == nil {
		return v
	}
	stray := judgement{text: v.text, Decision: Decision{Verdict: Retry, Delay: strayDelay}}
	if stray.text == "" {
		stray.text = "an error whose methods fail"
	}
	if j.c.Attempt >= j.h.MaxAttempts {
		stray.Decision = Decision{Verdict: Bury}
	}
	return stray
}

// timedOutError is an error that a handler returned after its time was over.
type timedOutError struct{ err error }

func (t *timedOutError) Error() string   { return ErrTimeout.Error() + ": " + t.err.Error() }
func (t *timedOutError) Unwrap() []error { return []error{ErrTimeout, t.err} }
