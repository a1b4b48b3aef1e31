package relaybustest_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/relaybustest"
)

func TestMistakesFailAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg      relaybus.Config
		handlers []relaybus.Handler
	}{
		"configuration": {cfg: relaybus.Config{Concurrency: -1}},
		"handlers":      {handlers: []relaybus.Handler{ok("h"), ok("h")}},
	} {
		f := newFakeTB(t)
		f.run(func() {
			relaybustest.New(f, test.cfg, test.handlers...)
			t.Errorf("%s: New returned", name)
		})
		if text := f.failure(t); !f.fatal || !strings.HasPrefix(text, "relaybustest: new bus: ") {
			t.Errorf("%s: failure %q", name, text)
		}
	}
}

func TestDrainReportsWhyItStopped(t *testing.T) {
	t.Parallel()
	f := newFakeTB(t)
	b := relaybustest.New(f, relaybus.Config{}, ok("h"))
	place(t, b, "o-1")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no more time")
	cancel(cause)
	b.Drain(ctx)
	if text := f.failure(t); !strings.Contains(text, "drain") {
		t.Errorf("failure %q", text)
	}
	b.AssertHandled(t, "h", 0)
}

func TestAdvanceNeedsTheTestsClock(t *testing.T) {
	t.Parallel()
	f := newFakeTB(t)
	b := relaybustest.New(f, relaybus.Config{Clock: relaybus.SystemClock{}})
	if b.Clock != nil {
		t.Error("Clock is set")
	}
	b.Advance(time.Second)
	if text := f.failure(t); !strings.Contains(text, "relaybus.SystemClock") {
		t.Errorf("failure %q", text)
	}
}

func TestLogGoesToTheTestWithTheTimeOfTheClock(t *testing.T) {
	t.Parallel()
	f := newFakeTB(t)
	var logger *slog.Logger
	f.run(func() {
		b := relaybustest.New(f, relaybus.Config{}, failing("h", relaybus.Permanent(errors.New("no"))))
		place(t, b, "o-1")
		b.Drain(t.Context())
		cfg := relaybustest.Completed(b, relaybus.Config{})
		logger = cfg.Logger.With("a", 1).WithGroup("g")
		logger.Debug("still there", "b", 2)
	})
	logger.Error("after the end")
	for _, want := range []string{
		`time=2000-01-01T00:00:00.000Z level=ERROR msg="relaybus: delivery is dead" handler=h`,
		`time=2000-01-01T00:00:00.000Z level=DEBUG msg="still there" a=1 g.b=2`,
	} {
		if !strings.Contains(f.log(), want) {
			t.Errorf("the log lacks %q:\n%s", want, f.log())
		}
	}
	if f.late > 0 || strings.Contains(f.log(), "after the end") {
		t.Error("a line was written after the end of the test")
	}
}

func TestOwnLoggerIsKept(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	b := relaybustest.New(t, relaybus.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	place(t, b, "o-1") // nobody takes it, which is logged
	if !strings.Contains(text.String(), "order.placed.v1") {
		t.Errorf("log %q", text.String())
	}
}

func TestBusIsStoppedAtTheEnd(t *testing.T) {
	t.Parallel()
	f := newFakeTB(t)
	var b *relaybustest.Bus
	f.run(func() {
		b = relaybustest.New(f, relaybus.Config{}, ok("h"))
		if err := b.Start(f.Context()); err != nil {
			t.Error(err)
		}
	})
	if err := b.Start(t.Context()); !errors.Is(err, relaybus.ErrStopped) {
		t.Errorf("error %v, want ErrStopped", err)
	}
	f.wantNone(t)
}

func TestHandlerThatStillRunsAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, heeds := range []bool{true, false} {
			f := newFakeTB(t)
			release := make(chan struct{})
			var started bool
			f.run(func() {
				b := relaybustest.New(f, relaybus.Config{},
					orderPlaced.Handle("h", func(ctx context.Context, _ *relaybus.Event[order]) error {
						started = true
						if heeds {
							<-ctx.Done()
							return ctx.Err()
						}
						<-release
						return nil
					}))
				if err := b.Start(f.Context()); err != nil {
					t.Error(err)
				}
				place(t, b, "o-1")
				synctest.Wait()
			})
			if !started {
				t.Error("the handler was not started")
			}
			if heeds {
				f.wantNone(t)
			} else if text := f.failure(t); !strings.Contains(text, "still running: h") {
				t.Errorf("failure %q", text)
			}
			close(release)
			synctest.Wait()
		}
	})
}

func TestDrainThatIsStillUnderWayAtTheEnd(t *testing.T) {
	t.Parallel()
	f := newFakeTB(t)
	started, release, drained := make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.run(func() {
		b := relaybustest.New(f, relaybus.Config{},
			orderPlaced.Handle("h", func(context.Context, *relaybus.Event[order]) error {
				close(started)
				<-release
				return nil
			}))
		place(t, b, "o-1")
		go func() {
			defer close(drained)
			b.Drain(context.WithoutCancel(t.Context()))
		}()
		<-started
	})
	if text := f.failure(t); !strings.Contains(text, "the test ended while handlers ran") || !strings.Contains(text, "event-1") {
		t.Errorf("failure %q", text)
	}
	close(release)
	<-drained
}

func TestBusThatTheTestStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTB(t)
		release := make(chan struct{})
		f.run(func() {
			b := relaybustest.New(f, relaybus.Config{Clock: relaybus.SystemClock{}},
				orderPlaced.Handle("h", func(context.Context, *relaybus.Event[order]) error {
					<-release
					return nil
				}))
			if err := b.Start(t.Context()); err != nil {
				t.Error(err)
			}
			place(t, b, "o-1")
			synctest.Wait()
			var stopError *relaybus.StopError
			if err := b.Stop(t.Context()); !errors.As(err, &stopError) {
				t.Errorf("error %v, want a StopError", err)
			}
			// What was published is still there to look at.
			b.AssertPublished(t, orderPlaced, 1)
			b.AssertHandled(t, "h", 0)
		})
		f.wantNone(t) // the test has seen the error of its own Stop
		close(release)
		synctest.Wait()
	})
}
