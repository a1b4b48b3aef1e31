package shutdown_test

import (
	"context"
	"errors"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func handlerScenarios() []scenario {
	return []scenario{
		{"with a handler that ignores its context", func(r *rig) {
			r.open(nil, r.hung(), r.quick("quick", time.Millisecond))
			r.publish(1)
			r.start()
			<-r.started
			<-r.started
			r.pass(50 * time.Millisecond)
			wantStillRunning(r, r.stopThrice(r.brief()), "hung")
			r.wantGoroutines(1)
			r.wantFree(1, "hung", "quick")
			r.letGo()
			r.wantGoroutines(0)
		}},
		{"with many of them and a backlog", func(r *rig) {
			r.open(func(c *relaybus.Config) { c.Concurrency = 3 }, r.hung())
			r.publish(10)
			r.start()
			<-r.started
			<-r.started
			<-r.started
			r.pass(50 * time.Millisecond)
			wantStillRunning(r, r.stop(r.brief()), "hung", "hung", "hung")
			r.wantGoroutines(3)
			r.wantFree(10, "hung")
		}},
		{"with a transactional handler that ignores its context", func(r *rig) {
			committed := make(chan struct{}, 1)
			r.open(nil, relaybus.Handle("hung", []string{"t"}, func(ctx context.Context, _ *relaybus.RawEvent) error {
				memstore.Tx(ctx).OnCommit(func() { committed <- struct{}{} })
				r.started <- "hung"
				<-r.release
				return nil
			}, relaybus.Transactional()))
			r.publish(1)
			r.start()
			<-r.started
			r.pass(50 * time.Millisecond)
			wantStillRunning(r, r.stop(r.brief()), "hung")
			r.wantGoroutines(1)
			r.wantFree(1, "hung")
			r.letGo()
			r.wantGoroutines(0)
			select {
			case <-committed:
				r.Error("its transaction was committed after its delivery had been given back")
			default:
			}
		}},
		{"with one that has run into its timeout", func(r *rig) {
			r.open(func(c *relaybus.Config) { c.CancelGrace = 20 * time.Millisecond },
				r.hung(relaybus.Timeout(10*time.Millisecond)))
			r.publish(1)
			r.start()
			<-r.started
			r.pass(60 * time.Millisecond)
			wantStillRunning(r, r.stop(r.brief()), "hung")
			r.wantGoroutines(1)
		}},
		{"with one that ignores its context, by Run", func(r *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			r.open(func(c *relaybus.Config) {
				c.ShutdownTimeout, c.CancelGrace = 100*time.Millisecond, 50*time.Millisecond
			}, r.hung())
			r.publish(1)
			ended := make(chan error, 1)
			go func() { ended <- r.bus.Run(ctx) }()
			<-r.started
			began := time.Now()
			cancel()
			cancel()
			err := <-ended
			if took := time.Since(began); r.virtual && took > 200*time.Millisecond {
				r.Errorf("Run took %v to end", took)
			}
			r.hurried.Store(true)
			wantStillRunning(r, err, "hung")
			r.wantGoroutines(1)
			r.wantFree(1, "hung")
		}},
		{"during RunOnce", func(r *rig) {
			r.open(nil, r.quick("h", 100*time.Millisecond))
			r.start()
			r.publish(3)
			ended := make(chan error, 1)
			go func() {
				_, err := r.bus.RunOnce(context.Background())
				ended <- err
			}()
			<-r.started
			r.pass(50 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			wantNilOr(r, "RunOnce", <-ended, relaybus.ErrStopped)
			r.wantGoroutines(0)
			r.wantFree(3-int(r.handled.Load()), "h")
		}},
		{"during Drain", func(r *rig) {
			r.open(func(c *relaybus.Config) { c.Concurrency = 2 }, r.quick("h", 30*time.Millisecond))
			r.start()
			r.publish(30)
			ended := make(chan error, 1)
			go func() {
				_, err := r.bus.Drain(context.Background())
				ended <- err
			}()
			<-r.started
			r.pass(100 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			wantNilOr(r, "Drain", <-ended, relaybus.ErrStopped)
			r.wantGoroutines(0)
			r.wantFree(30-int(r.handled.Load()), "h")
		}},
		{"during a Drain whose handler ignores its context", func(r *rig) {
			r.open(nil, r.hung())
			r.start()
			r.publish(1)
			<-r.started
			ended := make(chan error, 1)
			go func() {
				_, err := r.bus.Drain(context.Background())
				ended <- err
			}()
			r.pass(50 * time.Millisecond)
			wantStillRunning(r, r.stop(r.brief()), "hung")
			wantNilOr(r, "Drain", <-ended, relaybus.ErrStopped)
			r.wantGoroutines(1)
			r.wantFree(1, "hung")
		}},
		{"after a RunOnce without a start", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			r.publish(3)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				_, err := r.bus.RunOnce(ctx)
				ended <- err
			}()
			<-r.started
			cancel()
			wantNilOr(r, "RunOnce", <-ended, context.Canceled)
			wantIs(r, "Stop", r.stop(r.ample()), relaybus.ErrNotStarted)
			r.wantGoroutines(0)
			r.wantFree(-1, "h")
		}},
	}
}

func wantNilOr(r *rig, what string, err, class error) {
	r.Helper()
	if err != nil && !errors.Is(err, class) {
		r.Errorf("%s returned %v, want nil or %v", what, err, class)
	}
}
