package relaybus

import "time"

// Clock is the time of a bus. It must be safe for concurrent use.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own once d has passed, unless
	// stop is called before; stop reports whether it prevented the call.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the clock of the machine, the default. Durations are measured
// with the monotonic clock.
type SystemClock struct{}

// Now returns the current time.
func (SystemClock) Now() time.Time { return time.Now() }

// AfterFunc calls f after d.
func (SystemClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

var _ Clock = SystemClock{}

// stamp is a time as stores keep it: UTC, to the millisecond.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// stampClock makes every reading of a clock a stamp, so that what is compared
// with stored times has their precision.
type stampClock struct{ Clock }

func (c stampClock) Now() time.Time { return stamp(c.Clock.Now()) }
