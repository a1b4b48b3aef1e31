package relaybustest_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/relaybustest"
)

func TestClockStandsStill(t *testing.T) {
	t.Parallel()
	start := time.Date(2031, time.May, 4, 3, 2, 1, 0, time.UTC)
	c := relaybustest.NewClock(start)
	if now := c.Now(); !now.Equal(start) {
		t.Errorf("it shows %v, want %v", now, start)
	}
	c.Advance(90 * time.Second)
	if now, want := c.Now(), start.Add(90*time.Second); !now.Equal(want) {
		t.Errorf("after Advance it shows %v, want %v", now, want)
	}
	if now, want := relaybustest.NewClock(time.Time{}).Now(), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); !now.Equal(want) {
		t.Errorf("the default start is %v, want %v", now, want)
	}
}

// log notes at what time things happened.
type log struct {
	clock *relaybustest.Clock
	start time.Time
	mu    sync.Mutex
	lines []string
}

func newLog() *log {
	c := relaybustest.NewClock(time.Time{})
	return &log{clock: c, start: c.Now()}
}

func (l *log) add(what string) {
	at := l.clock.Now().Sub(l.start)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, what+" "+at.String())
}

func (l *log) after(d time.Duration, what string) (stop func() bool) {
	return l.clock.AfterFunc(d, func() { l.add(what) })
}

func (l *log) want(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.lines, want) {
		t.Errorf("got  %q\nwant %q", l.lines, want)
	}
}

func TestClockRunsTimersInTheOrderOfTheirTimes(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.after(3*time.Second, "c")
	l.after(time.Second, "a1")
	l.after(2*time.Second, "b")
	l.after(time.Second, "a2")
	l.after(time.Minute, "late")
	l.clock.Advance(3 * time.Second)
	l.want(t, "a1 1s", "a2 1s", "b 2s", "c 3s")
	if n := l.clock.Waiters(); n != 1 {
		t.Errorf("%d timers are left, want 1", n)
	}
	l.clock.AdvanceTo(l.start.Add(time.Minute - 1))
	l.want(t, "a1 1s", "a2 1s", "b 2s", "c 3s")
	l.clock.AdvanceTo(l.start.Add(time.Minute))
	l.want(t, "a1 1s", "a2 1s", "b 2s", "c 3s", "late 1m0s")
}

func TestClockRunsNestedTimersOfTheSpan(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.after(4*time.Second, "d")
	l.clock.AfterFunc(time.Second, func() {
		l.add("a")
		l.after(2*time.Second, "nested")
		l.after(0, "at once")
		l.after(time.Hour, "too late")
	})
	l.clock.Advance(10 * time.Second)
	l.want(t, "a 1s", "at once 1s", "nested 3s", "d 4s")
	if now, want := l.clock.Now(), l.start.Add(10*time.Second); !now.Equal(want) {
		t.Errorf("it shows %v, want %v", now, want)
	}
}

func TestClockFunctionsMayUseTheClock(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.clock.AfterFunc(time.Second, func() {
		l.add("outer")
		stopped := l.after(time.Second, "never")
		stopped()
		l.clock.Waiters()
		l.clock.Advance(5 * time.Second)
		l.add("outer ends")
	})
	l.after(3*time.Second, "inner")
	l.after(8*time.Second, "rest")
	l.clock.Advance(10 * time.Second)
	l.want(t, "outer 1s", "inner 3s", "outer ends 6s", "rest 8s")
}

func TestClockAdvancedByAFunctionThatRunsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.after(time.Second, "a")
	done := make(chan struct{})
	l.clock.AfterFunc(0, func() {
		defer close(done)
		l.clock.Advance(2 * time.Second)
	})
	<-done
	l.want(t, "a 1s")
}

func TestClockAdvanceWaitsForFunctions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := relaybustest.NewClock(time.Time{})
		release := make(chan struct{})
		var returned, advanced atomic.Bool
		c.AfterFunc(time.Second, func() {
			<-release
			returned.Store(true)
		})
		go func() {
			c.Advance(time.Second)
			if !returned.Load() {
				t.Error("Advance returned before the function")
			}
			advanced.Store(true)
		}()
		synctest.Wait()
		if advanced.Load() {
			t.Error("Advance returned while the function runs")
		}
		close(release)
		synctest.Wait()
		if !advanced.Load() {
			t.Error("Advance has not returned")
		}
	})
}

func TestClockStop(t *testing.T) {
	t.Parallel()
	l := newLog()
	stop := l.after(time.Second, "stopped")
	ran := l.after(2*time.Second, "ran")
	if !stop() {
		t.Error("stop of a waiting timer reports false")
	}
	if stop() {
		t.Error("a second stop reports true")
	}
	l.clock.Advance(time.Minute)
	if ran() {
		t.Error("stop of a timer that ran reports true")
	}
	l.want(t, "ran 2s")
}

func TestClockGoesOnAfterAFunctionThatExits(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.clock.AfterFunc(time.Second, runtime.Goexit)
	l.after(2*time.Second, "next")
	l.clock.Advance(time.Minute)
	l.want(t, "next 2s")
}

func TestClockSetRunsNoTimers(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.after(10*time.Second, "a")
	l.clock.Advance(4 * time.Second)
	back := l.start.Add(-time.Hour)
	l.clock.Set(back)
	if now := l.clock.Now(); !now.Equal(back) {
		t.Errorf("it shows %v, want %v", now, back)
	}
	l.want(t)
	l.clock.Set(l.start.Add(24 * time.Hour))
	l.want(t)
	// Six of its ten seconds are left, whatever the clock was set to.
	l.clock.Advance(6*time.Second - 1)
	l.want(t)
	l.clock.Advance(1)
	l.want(t, "a 24h0m6s")
}

func TestClockNeverMovesBackByAdvancing(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.clock.Advance(time.Hour)
	l.clock.Advance(-time.Minute)
	l.clock.AdvanceTo(l.start)
	if now, want := l.clock.Now(), l.start.Add(time.Hour); !now.Equal(want) {
		t.Errorf("it shows %v, want %v", now, want)
	}
}

func TestClockLongestTimer(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.clock.Advance(time.Hour)
	l.after(math.MaxInt64, "never")
	l.clock.Advance(365 * 24 * time.Hour)
	l.want(t)
	if n := l.clock.Waiters(); n != 1 {
		t.Errorf("%d timers are left, want 1", n)
	}
}

func TestClockBlockUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := relaybustest.NewClock(time.Time{})
		var passed atomic.Bool
		go func() {
			if err := c.BlockUntil(t.Context(), 2); err != nil {
				t.Error(err)
			}
			passed.Store(true)
		}()
		c.AfterFunc(time.Second, func() {})
		synctest.Wait()
		if passed.Load() {
			t.Error("it did not wait for the second timer")
		}
		c.AfterFunc(time.Second, func() {})
		synctest.Wait()
		if !passed.Load() {
			t.Error("it still waits although two timers are set")
		}
		c.Advance(time.Second)
		cause := errors.New("given up")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := c.BlockUntil(ctx, 1); !errors.Is(err, cause) {
			t.Errorf("error %v, want the context's cause", err)
		}
		if err := c.BlockUntil(ctx, 0); err != nil {
			t.Errorf("error %v with enough timers", err)
		}
	})
}

func TestClockConcurrentUse(t *testing.T) {
	t.Parallel()
	c := relaybustest.NewClock(time.Time{})
	start := c.Now()
	const workers, timers = 8, 200
	// Each timer is done once, when it runs or is stopped.
	var pending, group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range timers {
				pending.Add(1)
				stop := c.AfterFunc(time.Duration(i%7)*time.Millisecond, func() {
					defer pending.Done()
					c.Now()
				})
				if i%3 == w%3 && stop() {
					pending.Done()
				}
				if i%10 == 0 {
					c.Advance(time.Millisecond)
				}
			}
		})
	}
	group.Wait()
	c.Advance(time.Hour)
	pending.Wait()
	if n := c.Waiters(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
	if passed := c.Now().Sub(start); passed < time.Hour {
		t.Errorf("%v passed, want at least an hour", passed)
	}
}
