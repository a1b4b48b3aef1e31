package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relaybus-go/relaybus"
)

func plainScenarios() []scenario {
	return []scenario{
		{"at once after the start", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			r.start()
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			wantNil(r, "another Stop", r.stop(r.ample()))
		}},
		{"while idle, after the context of the start has ended", func(r *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			r.open(nil, r.quick("h", time.Millisecond))
			wantNil(r, "Start", r.bus.Start(ctx))
			cancel()
			r.publish(1)
			<-r.started
			r.pass(10 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			if n := r.handled.Load(); n != 1 {
				r.Errorf("%d events were handled, want 1", n)
			}
			r.wantGoroutines(0)
		}},
		{"in the middle of a backlog", func(r *rig) {
			r.open(func(c *relaybus.Config) { c.Concurrency = 2 }, r.quick("h", 20*time.Millisecond))
			r.publish(20)
			r.start()
			<-r.started
			r.pass(70 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			r.wantGoroutines(0)
			r.wantFree(20-int(r.handled.Load()), "h")
		}},
		{"with work that is claimed and not started", func(r *rig) {
			var n atomic.Int64
			blocks := make(chan struct{})
			r.open(func(c *relaybus.Config) {
				c.Concurrency, c.BatchSize, c.ShutdownTimeout = 4, 10, 100*time.Millisecond
			},
				relaybus.Handle("h", []string{"t"}, func(ctx context.Context, _ *relaybus.RawEvent) error {
					if n.Add(1) > 20 {
						r.started <- "h"
						select {
						case <-blocks:
						case <-ctx.Done():
						}
						return context.Cause(ctx)
					}
					return nil
				}, relaybus.Concurrency(1)))
			r.publish(60)
			r.start()
			<-r.started
			r.pass(20 * time.Millisecond)
			stats, err := r.db.Stats(r.Context(), time.Now())
			if err != nil || r.virtual && stats.Running < 2 {
				r.Errorf("%d deliveries are claimed, want some that wait (%v)", stats.Running, err)
			}
			wantNil(r, "Stop", r.stop(r.ample()))
			r.wantGoroutines(0)
			r.wantFree(40, "h")
		}},
		{"while others publish", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			r.start()
			var published atomic.Int64
			var wg sync.WaitGroup
			for p := range 4 {
				wg.Go(func() {
					for i := 0; ; i++ {
						err := r.bus.Publish(context.Background(),
							relaybus.Raw("t", []byte(`1`), relaybus.ID(fmt.Sprintf("p%d.%d", p, i))))
						if errors.Is(err, relaybus.ErrStopped) {
							return
						}
						if err != nil {
							r.Errorf("Publish during Stop: %v", err)
							return
						}
						published.Add(1)
						<-time.After(time.Millisecond)
					}
				})
			}
			r.pass(20 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			wg.Wait()
			r.wantGoroutines(0)
			r.wantFree(int(published.Load()-r.handled.Load()), "h")
		}},
		{"with a context that has ended", func(r *rig) {
			r.open(nil, r.quick("h", 100*time.Millisecond))
			r.publish(3)
			r.start()
			<-r.started
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			began := time.Now()
			err := r.bus.Stop(ctx)
			if took := time.Since(began); r.virtual && took > time.Second {
				r.Errorf("Stop took %v: %v", took, err)
			}
			wantNil(r, "Stop", err)
			r.wantGoroutines(0)
			r.wantFree(3, "h")
		}},
		{"by a context of Run that is cancelled twice", func(r *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			r.open(nil, r.quick("h", 30*time.Millisecond))
			r.publish(2)
			ended := make(chan error, 1)
			go func() { ended <- r.bus.Run(ctx) }()
			<-r.started
			r.pass(20 * time.Millisecond)
			cancel()
			cancel()
			wantNil(r, "Run", <-ended)
			wantNil(r, "Stop after Run", r.stop(r.ample()))
			r.wantGoroutines(0)
			if n := r.handled.Load(); n != 2 {
				r.Errorf("%d events were handled within the grace, want 2", n)
			}
		}},
		{"beside Run", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			ended := make(chan error, 1)
			r.publish(1)
			go func() { ended <- r.bus.Run(context.Background()) }()
			<-r.started
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			wantNilOr(r, "Run", <-ended, relaybus.ErrStopped) // when the handler was quicker than the start
			r.wantGoroutines(0)
		}},
	}
}
