package shutdown_test

import (
	"context"
	"errors"
	"time"

	"github.com/relaybus-go/relaybus"
)

var errStarted = errors.New("the caller gave up")

func startScenarios() []scenario {
	return []scenario{
		{"before the start", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			for range 3 {
				wantIs(r, "Stop", r.stop(r.ample()), relaybus.ErrNotStarted)
			}
			r.start()
			r.publish(1)
			<-r.started
			wantNil(r, "Stop", r.stop(r.ample()))
			wantIs(r, "Start", r.bus.Start(r.Context()), relaybus.ErrStopped)
			r.wantGoroutines(0)
		}},
		{"during a setup that hangs", func(r *rig) {
			r.store.hold("setup", hangs)
			r.open(nil, r.quick("h", time.Millisecond))
			ended := make(chan error, 1)
			go func() { ended <- r.bus.Start(context.Background()) }()
			r.awaitStarting()
			r.pass(50 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			wantIs(r, "Start", <-ended, relaybus.ErrStopped)
			wantIs(r, "Publish", r.bus.Publish(r.Context(), relaybus.Raw("t", []byte(`1`))), relaybus.ErrStopped)
			r.wantGoroutines(0)
		}},
		{"during a setup that ignores its context", func(r *rig) {
			r.store.hold("setup", func(context.Context) error {
				<-r.release
				return nil
			})
			r.open(nil, r.quick("h", time.Millisecond))
			ended := make(chan error, 1)
			go func() { ended <- r.bus.Start(context.Background()) }()
			r.awaitStarting()
			if err := r.stopThrice(r.brief()); err == nil {
				r.Error("Stop returned nil while the start goes on")
			}
			r.letGo()
			wantIs(r, "Start", <-ended, relaybus.ErrStopped)
			wantNil(r, "Stop after it", r.stop(r.ample()))
			r.wantGoroutines(0)
		}},
		{"after a start whose context ended", func(r *rig) {
			ctx, cancel := context.WithCancelCause(context.Background())
			r.store.hold(pick(r, "setup", "handlers"), hangs)
			r.open(nil, r.quick("h", time.Millisecond))
			ended := make(chan error, 1)
			go func() { ended <- r.bus.Start(ctx) }()
			r.awaitStarting()
			r.pass(50 * time.Millisecond)
			cancel(errStarted)
			wantIs(r, "Start", <-ended, errStarted)
			wantNil(r, "Stop", r.stopThrice(r.ample())) // why it did not start, Start has said
			wantIs(r, "Publish", r.bus.Publish(r.Context(), relaybus.Raw("t", []byte(`1`))), relaybus.ErrStopped)
			r.wantGoroutines(0)
		}},
		{"at the same moment as the start", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			r.publish(2)
			ended := make(chan error, 1)
			go func() { ended <- r.bus.Start(context.Background()) }()
			err := r.stopThriceAnyhow()
			if startErr := <-ended; startErr == nil && errors.Is(err, relaybus.ErrNotStarted) {
				wantNil(r, "Stop", r.stop(r.ample())) // it came too early
			} else if startErr != nil && !errors.Is(startErr, relaybus.ErrStopped) {
				r.Errorf("Start: %v", startErr)
			}
			r.wantGoroutines(0)
			r.wantFree(2-int(r.handled.Load()), "h")
		}},
	}
}

// stopThriceAnyhow is stopThrice for calls of which some may come before the
// start and some after it. It returns ErrNotStarted if any did.
func (r *rig) stopThriceAnyhow() error {
	errs := make(chan error, 3)
	for range 3 {
		go func() { errs <- r.stop(r.ample()) }()
	}
	var early error
	for range 3 {
		if err := <-errs; errors.Is(err, relaybus.ErrNotStarted) {
			early = err
		}
	}
	if early != nil && !errors.Is(r.stop(r.brief()), relaybus.ErrNotStarted) {
		return nil
	}
	return early
}

// awaitStarting waits until Start has begun.
func (r *rig) awaitStarting() {
	for !errors.Is(r.bus.Subscribe(), relaybus.ErrAlreadyStarted) {
		<-time.After(time.Millisecond)
	}
}

func pick[T any](r *rig, list ...T) T { return list[r.rand.IntN(len(list))] }
