package relaybustest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// fakeTB is a test that records its failures instead of failing.
type fakeTB struct {
	testing.TB
	ctx    context.Context //nolint:containedctx // it is the context of the fake test
	cancel context.CancelFunc

	mu       sync.Mutex
	errors   []string
	fatal    bool
	cleanups []func()
	out      bytes.Buffer
	over     bool
	late     int // lines written after the end
}

func newFakeTB(t *testing.T) *fakeTB {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeTB{TB: t, ctx: ctx, cancel: cancel}
	t.Cleanup(cancel)
	return f
}

func (*fakeTB) Helper() {}

func (f *fakeTB) Context() context.Context { return f.ctx }

func (f *fakeTB) Cleanup(cleanup func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanups = append(f.cleanups, cleanup)
}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		f.late++
	}
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.mu.Lock()
	f.fatal = true
	f.mu.Unlock()
	runtime.Goexit()
}

func (f *fakeTB) Output() io.Writer { return f }

func (f *fakeTB) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		f.late++
	}
	return f.out.Write(p)
}

// run runs a test function as the testing package would, to its end.
func (f *fakeTB) run(test func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		test()
	}()
	<-done
	f.end()
}

func (f *fakeTB) end() {
	f.cancel()
	for {
		f.mu.Lock()
		n := len(f.cleanups)
		if n == 0 {
			f.over = true
			f.mu.Unlock()
			return
		}
		cleanup := f.cleanups[n-1]
		f.cleanups = f.cleanups[:n-1]
		f.mu.Unlock()
		cleanup()
	}
}

// failure returns the only failure, and forgets it.
func (f *fakeTB) failure(t *testing.T) string {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errors) != 1 {
		t.Fatalf("%d failures, want 1: %q", len(f.errors), f.errors)
	}
	text := f.errors[0]
	f.errors = nil
	return text
}

func (f *fakeTB) wantNone(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errors) > 0 {
		t.Errorf("failures: %s", strings.Join(f.errors, "\n"))
	}
}

func (f *fakeTB) log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out.String()
}
