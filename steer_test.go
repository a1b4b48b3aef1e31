package relaybus_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/relaybus-go/relaybus"
)

// errors whose methods are hostile.
type textPanicError struct{}

func (textPanicError) Error() string { panic("in Error") }

type textExitError struct{}

func (textExitError) Error() string { runtime.Goexit(); return "" }

type isPanicError struct{}

func (isPanicError) Error() string   { return "panics in Is" }
func (isPanicError) Is(error) bool   { panic("in Is") }
func (isPanicError) As(any) bool     { panic("in As") }
func (isPanicError) Unwrap() []error { panic("in Unwrap") }

type incomparableError []string

func (i incomparableError) Error() string { return strings.Join(i, "") }

// B10: what a handler returns decides what follows.
func TestSteering(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status relaybus.Status
		wait   time.Duration
		text   string
		hook   string
	}{
		"error":             {errBoom, relaybus.StatusPending, time.Second, "boom", "retried h e-1 1"},
		"permanent":         {relaybus.Permanent(errBoom), relaybus.StatusDead, 0, "boom", "buried h e-1 1"},
		"permanent of nil":  {relaybus.Permanent(nil), relaybus.StatusDead, 0, "permanent failure", "buried h e-1 1"},
		"wrapped permanent": {fmt.Errorf("outer: %w", relaybus.Permanent(errBoom)), relaybus.StatusDead, 0, "outer: boom", "buried h e-1 1"},
		"retry after":       {relaybus.RetryAfter(42*time.Second, errBoom), relaybus.StatusPending, 42 * time.Second, "boom", "retried h e-1 1"},
		"retry after nil":   {relaybus.RetryAfter(time.Minute, nil), relaybus.StatusPending, time.Minute, "retry asked for", "retried h e-1 1"},
		"retry at once":     {relaybus.RetryAfter(-time.Second, errBoom), relaybus.StatusPending, 0, "boom", "retried h e-1 1"},
		"retry after ages":  {relaybus.RetryAfter(1<<63-1, errBoom), relaybus.StatusPending, 10 * 365 * 24 * time.Hour, "boom", "retried h e-1 1"},
		"NUL and invalid":   {errors.New("x\x00\xff"), relaybus.StatusPending, time.Second, "x\uFFFD\uFFFD", "retried h e-1 1"},
		"panics in Error":   {textPanicError{}, relaybus.StatusPending, time.Second, "an error whose Error method panics", "retried h e-1 1"},
		"exits in Error":    {textExitError{}, relaybus.StatusPending, time.Minute, "an error whose methods fail", "retried h e-1 1"},
		"panics in Is":      {isPanicError{}, relaybus.StatusPending, time.Minute, "panics in Is", "retried h e-1 1"},
		"incomparable":      {incomparableError{"a"}, relaybus.StatusPending, time.Second, "a", "retried h e-1 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first := true
				b := newBed(t, nil, things("h", func(context.Context, *relaybus.RawEvent) error {
					if first {
						first = false
						return c.err
					}
					return nil
				}))
				began := time.Now()
				b.publish(raw("e-1"))
				b.seen.took()
				if n, err := b.RunOnce(t.Context()); n != 1 || err != nil {
					t.Fatalf("RunOnce: %d, %v", n, err)
				}
				d := b.only(relaybus.Filter{EventID: "e-1"})
				if d.Status != c.status || d.Error != c.text || d.Attempts != 1 || d.Lost != 0 {
					t.Errorf("delivery is %+v", d)
				}
				if wait := d.DueAt.Sub(began); c.status == relaybus.StatusPending && wait != c.wait {
					t.Errorf("due after %v, want %v", wait, c.wait)
				}
				if seen := b.seen.took(); !slices.Equal(seen, []string{"started h e-1 1", c.hook}) {
					t.Errorf("hooks: %q", seen)
				}
			})
		})
	}
}

// F08, F34: a long error text is cut, and the delivery still reaches its end.
func TestLongErrorText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", func(context.Context, *relaybus.RawEvent) error {
			return relaybus.Permanent(errors.New(strings.Repeat("é\x00", 100_000)))
		}))
		b.publish(raw("e-1"))
		b.drain()
		d := b.only(relaybus.Filter{Status: relaybus.StatusDead})
		if len(d.Error) > 4096 || len(d.Error) < 4000 || !utf8.ValidString(d.Error) || strings.Contains(d.Error, "\x00") || !strings.HasSuffix(d.Error, "(cut)") {
			t.Errorf("the text has %d bytes: %.40q … %q", len(d.Error), d.Error, d.Error[len(d.Error)-20:])
		}
	})
}

// B10, F27: a panic is an error with its stack, in every place and of every
// kind.
func TestPanics(t *testing.T) {
	t.Parallel()
	fail := map[string]func(){
		"value":   func() { panic("a value") },
		"nil":     func() { panic(nil) }, //nolint:govet // that is the case
		"error":   func() { panic(errors.New("x\x00\xff")) },
		"huge":    func() { panic(strings.Repeat("x", 1<<20)) },
		"hostile": func() { panic(textPanicError{}) },
		"goexit":  func() { runtime.Goexit() },
		"library": func() { _ = strings.Repeat("x", -len(t.Name())) },
	}
	for _, transactional := range []bool{false, true} {
		for name, f := range fail {
			t.Run(fmt.Sprintf("%s transactional %v", name, transactional), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var options []relaybus.HandlerOption
					if transactional {
						options = append(options, relaybus.Transactional())
					}
					var b *bed
					b = newBed(t, nil, things("h", func(ctx context.Context, e *relaybus.RawEvent) error {
						if transactional && e.Attempt == 1 {
							if err := b.Publish(ctx, relaybus.Raw("other", []byte(`1`), relaybus.ID("phantom"))); err != nil {
								t.Errorf("publish: %v", err)
							}
						}
						if e.Attempt == 1 {
							f()
						}
						return nil
					}, options...))
					b.start()
					b.publish(raw("e-1"))
					synctest.Wait()
					d := b.only(relaybus.Filter{EventID: "e-1"})
					if d.Attempts != 1 || d.Status != relaybus.StatusPending || !utf8.ValidString(d.Error) || len(d.Error) > 4096 {
						t.Errorf("delivery is %+v", d)
					}
					var p *relaybus.PanicError
					if err := b.seen.lastErr(); name != "goexit" && (!errors.As(err, &p) || !strings.Contains(string(p.Stack), "TestPanics")) {
						t.Errorf("the hook was told %T", err)
					}
					pass(2 * time.Second)
					synctest.Wait()
					if d := b.only(relaybus.Filter{EventID: "e-1"}); d.Status != relaybus.StatusCompleted {
						t.Errorf("after the retry the delivery is %+v", d)
					}
					if _, _, err := b.Event(t.Context(), "phantom"); !errors.Is(err, relaybus.ErrNotFound) {
						t.Errorf("a write of the failed attempt was kept: %v", err)
					}
				})
			})
		}
	}
}

type panickingText struct{}

func (*panickingText) UnmarshalJSON([]byte) error { panic("in UnmarshalJSON") }

// F27: a panic in decoding, in middleware, in a hook, in a retry policy.
func TestPanicsElsewhere(t *testing.T) {
	t.Parallel()
	succeed := func(context.Context, *relaybus.RawEvent) error { return nil }
	fails := func(context.Context, *relaybus.RawEvent) error { return errBoom }
	policy := func(f func()) relaybus.HandlerOption {
		return relaybus.Retry(relaybus.RetryPolicy{MaxAttempts: 2, Delay: func(int, error) time.Duration { f(); return 0 }})
	}
	for name, c := range map[string]struct {
		handler relaybus.Handler
		change  func(*relaybus.Config)
		status  relaybus.Status
	}{
		"decoding": {
			relaybus.Define[panickingText]("thing.done").Handle("h", func(context.Context, *relaybus.Event[panickingText]) error { return nil }),
			nil, relaybus.StatusDead,
		},
		"middleware": {things("h", succeed), func(cfg *relaybus.Config) {
			cfg.Middleware = []relaybus.Middleware{func(relaybus.HandlerFunc) relaybus.HandlerFunc {
				return func(context.Context, *relaybus.RawEvent) error { panic("in middleware") }
			}}
		}, relaybus.StatusDead},
		"hooks":                {things("h", succeed), func(cfg *relaybus.Config) { cfg.Hooks = []relaybus.Hook{panickingHook{}} }, relaybus.StatusCompleted},
		"retry policy":         {things("h", fails, policy(func() { panic("in policy") })), nil, relaybus.StatusDead},
		"retry policy exits":   {things("h", fails, policy(runtime.Goexit)), nil, relaybus.StatusDead},
		"randomness":           {things("h", fails), func(cfg *relaybus.Config) { cfg.Retry.NoJitter = false; cfg.Random = panicOnce() }, relaybus.StatusDead},
		"hooks of a failing h": {things("h", fails), func(cfg *relaybus.Config) { cfg.Hooks = []relaybus.Hook{panickingHook{}} }, relaybus.StatusDead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, func(cfg *relaybus.Config) {
					cfg.Retry.MaxAttempts = 2
					cfg.Retention.Interval = relaybus.Never // it would draw a number
					if c.change != nil {
						c.change(cfg)
					}
				}, c.handler)
				b.start()
				b.publish(raw("e-1"))
				pass(5 * time.Minute)
				synctest.Wait()
				if d := b.only(relaybus.Filter{EventID: "e-1"}); d.Status != c.status {
					t.Errorf("delivery is %+v", d)
				}
				if err := b.Stop(t.Context()); err != nil {
					t.Errorf("Stop: %v", err)
				}
			})
		})
	}
}

func panicOnce() func() float64 {
	return func() float64 { panic("in Random") }
}

// B10: Unavailable spends no attempt, pauses the handler, and probes with
// backoff and one delivery at a time.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		other := newDesk(t)
		b := newBed(t, nil, things("h", d.heed), relaybus.Handle("other", []string{"other"}, other.heed)).start()
		for i := range 8 {
			b.publish(raw(fmt.Sprint("e-", i)))
		}
		began := time.Now()
		synctest.Wait() // all of them run
		for range 8 {
			d.next().reply <- relaybus.Unavailable(errBoom)
		}
		// All that were under way count as one outage.
		for _, after := range []time.Duration{1, 3, 7, 15, 31, 63, 123, 183} {
			c := d.next()
			if took := time.Since(began); took != after*time.Second {
				t.Errorf("probed after %v, want %v s", took, after)
			}
			d.idle()
			if c.event.Attempt != 1 {
				t.Errorf("attempt %d", c.event.Attempt)
			}
			b.publish(relaybus.Raw("other", []byte(`1`)))
			other.next().reply <- nil // nobody else waits
			c.reply <- relaybus.Unavailable(nil)
		}
		d.next().reply <- nil // up again
		for range 7 {
			d.next().reply <- nil
		}
		if took := time.Since(began); took != 243*time.Second {
			t.Errorf("the backlog went after %v", took)
		}
		synctest.Wait()
		if s := b.stats(); s.Completed != 16 || s.Pending+s.Running+s.Dead != 0 {
			t.Errorf("statistics are %+v", s)
		}
	})
}

// An outage that a handler reports while a claim for it is under way must not
// leave deliveries claimed and waiting.
func TestUnavailableGivesBackQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, func(c *relaybus.Config) { c.Concurrency = 2 }, things("h", d.heed)).start()
		messages := make([]relaybus.Message, 100)
		for i := range messages {
			messages[i] = raw(fmt.Sprint("e-", i))
		}
		b.publish(messages...)
		for range 50 { // quickly, so that it claims ahead
			d.next().reply <- nil
		}
		synctest.Wait()
		if n := b.stats().Running; n < 3 {
			t.Fatalf("%d are claimed, want some ahead", n)
		}
		d.next().reply <- relaybus.Unavailable(errBoom)
		d.next().reply <- relaybus.Unavailable(errBoom)
		synctest.Wait()
		if s := b.stats(); s.Running != 0 || s.Pending != 50 {
			t.Errorf("after the outage %d are claimed, %d pending", s.Running, s.Pending)
		}
	})
}

// Drain says why it stopped when handlers wait for an outage to end.
func TestDrainSaysThatHandlersAreHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := false
		b := newBed(t, nil, things("h", func(context.Context, *relaybus.RawEvent) error {
			if up {
				return nil
			}
			return relaybus.Unavailable(errBoom)
		}))
		b.publish(raw("e-1"))
		n, err := b.Drain(t.Context())
		if n != 1 || !errors.Is(err, relaybus.ErrHeldBack) || !strings.Contains(err.Error(), "h") {
			t.Errorf("Drain: %d, %v", n, err)
		}
		up = true
		pass(time.Second)
		if n := b.drain(); n != 1 {
			t.Errorf("Drain ran %d, want 1", n)
		}
	})
}
