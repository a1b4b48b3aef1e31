package relaybustest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus"
)

var _ relaybus.Clock = (*Clock)(nil)

// Clock is a clock that stands still until the test moves it. It is safe for
// concurrent use. Make one with [NewClock].
type Clock struct {
	mu sync.Mutex
	// origin is the time of day at elapsed 0. Timers go by elapsed alone, as
	// those of the system go by the monotonic clock.
	origin  time.Time
	elapsed time.Duration
	created uint64
	timers  []*timer // in the order in which they are due
	// atOnce has the timers whose time had passed when they were set, while
	// their functions run.
	atOnce map[*timer]struct{}
	// set is closed when a timer is set; nil while nobody waits for one.
	set chan struct{}
}

// timer is a function that is to be called, or that is being called.
type timer struct {
	at     time.Duration
	number uint64
	f      func()
	done   chan struct{} // closed when f has returned
}

// NewClock returns a clock that shows start. The zero time stands for midnight
// UTC of January 1, 2000, where a bubble of testing/synctest begins, too.
func NewClock(start time.Time) *Clock {
	if start.IsZero() {
		start = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return &Clock{origin: start.Round(0), atOnce: make(map[*timer]struct{})}
}

// Now returns the time that the clock shows. While [Clock.Advance] calls the
// function of a timer it is the time at which the timer is due.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin.Add(c.elapsed)
}

// AfterFunc calls f in a goroutine of its own once the clock has been advanced
// by d, unless stop is called before; stop reports whether it prevented the
// call. If d is not positive, f is called at once.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created++
	t := &timer{at: later(c.elapsed, d), number: c.created, f: f, done: make(chan struct{})}
	if d <= 0 {
		c.atOnce[t] = struct{}{}
		go c.call(t)
		return func() bool { return false }
	}
	at, _ := slices.BinarySearchFunc(c.timers, t, byTime)
	c.timers = slices.Insert(c.timers, at, t)
	if c.set != nil {
		close(c.set)
		c.set = nil
	}
	return func() bool { return c.stop(t) }
}

func byTime(a, b *timer) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number)) }

// later is from + d, or as late as can be.
func later(from, d time.Duration) time.Duration {
	if d > math.MaxInt64-from {
		return math.MaxInt64
	}
	return from + max(d, 0)
}

func (c *Clock) stop(t *timer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.timers, t)
	if at < 0 {
		return false
	}
	c.timers = slices.Delete(c.timers, at, at+1)
	return true
}

// call is the goroutine of a timer. Its end is deferred, as the function may
// leave with runtime.Goexit (t.FailNow).
func (c *Clock) call(t *timer) {
	defer func() {
		c.mu.Lock()
		delete(c.atOnce, t)
		c.mu.Unlock()
		close(t.done)
	}()
	t.f()
}

// Advance moves the clock on by d, and calls the functions of the timers that
// become due on the way: one after the other, in the order of their times and
// of their creation, each in a goroutine of its own with the clock at the time
// of its timer. Timers that these functions set are included when they fall
// into the same span. It returns when all these functions have returned.
//
// A function may use the clock freely, and may itself call Advance, which then
// counts from the function's time. Advances at the same time don't wait for
// each other's functions. A function that waits for the clock to move on blocks
// Advance for ever. A negative d is taken as 0; see [Clock.Set].
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(later(c.elapsed, d))
}

// AdvanceTo is [Clock.Advance] until the clock shows t. It does nothing when
// the clock shows t or a later time already.
func (c *Clock) AdvanceTo(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := t.Sub(c.origin.Add(c.elapsed)); d > 0 {
		c.advance(later(c.elapsed, d))
	}
}

// advance is called with the mutex held, which it gives up while functions run.
func (c *Clock) advance(target time.Duration) {
	began := c.created
	for {
		t := c.next(target, began)
		if t == nil {
			break
		}
		c.mu.Unlock()
		<-t.done
		c.mu.Lock()
	}
	c.elapsed = max(c.elapsed, target)
}

// next returns a timer whose function has to return before time moves on. Of
// those that run without an Advance, only what was set since this one began is
// waited for: what was set before may be the caller itself.
func (c *Clock) next(target time.Duration, began uint64) *timer {
	for t := range c.atOnce {
		if t.number > began {
			return t
		}
	}
	if len(c.timers) == 0 || c.timers[0].at > target {
		return nil
	}
	t := c.timers[0]
	c.timers = slices.Delete(c.timers, 0, 1)
	c.elapsed = max(c.elapsed, t.at)
	go c.call(t)
	return t
}

// Set makes the clock show t, before or after the time that it shows, as when
// the clock of a machine is set: no timer runs, and each keeps the time that it
// has left.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origin = t.Round(0).Add(-c.elapsed)
}

// Waiters returns how many timers are set and have neither run nor been
// stopped.
func (c *Clock) Waiters() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// BlockUntil waits until at least n timers are set, so that an advance does not
// come before them. The timers of a bus are among them, and how many a bus sets
// is not part of its contract. When the context ends before that, the error
// wraps its cause.
func (c *Clock) BlockUntil(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		have := len(c.timers)
		if c.set == nil {
			c.set = make(chan struct{})
		}
		set := c.set
		c.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-set:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d timers, of which %d are set: %w", n, have, context.Cause(ctx))
		}
	}
}
