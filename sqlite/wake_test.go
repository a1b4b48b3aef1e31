package sqlite_test

import (
	"context"
	"testing"

	"github.com/relaybus-go/relaybus/sqlite"
)

// B14: a commit on another instance is signalled.
func TestWake(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	other := newBedAt(t, b.path, sqlite.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	signals := make(chan struct{}, 1000)
	done := make(chan error, 1)
	go func() { done <- b.s.Wake(ctx, func() { signals <- struct{}{} }) }()
	for range 5 {
		// The first commit may come before the watch begins, and an id that is known changes nothing.
		for signalled := false; !signalled; {
			other.publish(other.events(1, "", "h")...)
			select {
			case <-signals:
				signalled = true
			case <-t.Context().Done():
				t.Fatal("no signal")
			default:
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("wake: %v", err)
	}
}

// What this instance commits is no news to it.
func TestWakeLeavesOwnCommitsOut(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.publish(b.event("first", "", "h"))
	other := open(t, b.path, sqlite.Config{})
	changed, stop := sqlite.Watch(t.Context(), t, b.s)
	defer stop()
	for range 5 {
		b.publish(b.events(1, "", "h")...)
		b.complete(b.claim(10, "h")...)
		if changed() {
			t.Error("own commits were signalled")
		}
	}
	if changed() {
		t.Error("a change without a commit")
	}
	o := &bed{t: t, s: other, path: b.path, now: b.now}
	o.publish(o.event("theirs", "", "h"))
	b.publish(b.event("ours", "", "h"))
	if !changed() {
		t.Error("a commit of another instance among own ones was not signalled")
	}
}
