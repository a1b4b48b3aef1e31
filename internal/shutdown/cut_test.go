package shutdown_test

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
)

func storeScenarios() []scenario {
	return []scenario{
		{"while the store does not answer", func(r *rig) {
			r.open(nil, r.quick("h", 20*time.Millisecond))
			r.publish(3)
			r.start()
			<-r.started
			r.store.sever(hangs)
			r.pass(50 * time.Millisecond)
			if err := r.stopThrice(r.brief()); err == nil {
				r.Error("Stop returned nil, and could give nothing back")
			}
			r.wantGoroutines(0)
		}},
		{"while the store refuses everything", func(r *rig) {
			r.open(nil, r.quick("h", 20*time.Millisecond))
			r.publish(3)
			r.start()
			<-r.started
			r.store.sever(refuses)
			r.pass(50 * time.Millisecond)
			if err := r.stopThrice(r.brief()); err == nil {
				r.Error("Stop returned nil, and could give nothing back")
			}
			r.wantGoroutines(0)
		}},
		{"while the store is cut, without work", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			r.start()
			r.store.sever(pick(r, hangs, refuses))
			r.pass(2 * time.Second)
			if err := r.stopThrice(r.brief()); err == nil {
				r.Error("Stop returned nil, and could not give its lanes back")
			}
			r.wantGoroutines(0)
		}},
		{"while the store is cut and a handler ignores its context", func(r *rig) {
			r.open(nil, r.hung())
			r.publish(1)
			r.start()
			<-r.started
			r.store.sever(pick(r, hangs, refuses))
			wantStillRunning(r, r.stop(r.brief()), "hung")
			r.wantGoroutines(1)
		}},
		{"while the answer of a claim is under way", func(r *rig) {
			r.publishFirst(5)
			arrived := make(chan struct{}, 100)
			late := time.Duration(r.rand.Int64N(int64(80 * time.Millisecond)))
			r.store.holdReply("claim", func(context.Context) error {
				arrived <- struct{}{}
				<-time.After(late)
				return nil
			})
			r.open(nil, r.quick("h", 30*time.Millisecond))
			r.start()
			<-arrived
			r.pass(60 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			r.wantGoroutines(0)
			r.wantFree(5-int(r.handled.Load()), "h")
		}},
		{"while the answer of a claim is lost", func(r *rig) {
			r.publishFirst(5)
			arrived := make(chan struct{}, 100)
			r.store.holdReply("claim", func(ctx context.Context) error {
				arrived <- struct{}{}
				<-ctx.Done()
				return &store.Error{Op: "claim", Class: store.ErrTimeout, Also: store.ErrOutcomeUnknown, Err: context.Cause(ctx)}
			})
			r.open(nil, r.quick("h", 30*time.Millisecond))
			r.start()
			<-arrived
			r.pass(50 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			r.wantGoroutines(0)
			r.wantFree(5, "h")
		}},
		{"while the answer of a claim of RunOnce is under way", func(r *rig) {
			arrived, goOn := make(chan struct{}, 100), make(chan struct{})
			r.open(nil, r.quick("h", 30*time.Millisecond))
			r.start()
			r.store.holdReply("claim", func(context.Context) error {
				arrived <- struct{}{}
				<-goOn
				return nil
			})
			r.publish(5)
			<-arrived // of the dispatcher, or of RunOnce
			ended := make(chan error, 1)
			go func() {
				_, err := r.bus.RunOnce(context.Background())
				ended <- err
			}()
			stopped := make(chan error, 1)
			go func() { stopped <- r.stopThrice(r.ample()) }()
			r.pass(100 * time.Millisecond)
			close(goOn)
			wantNil(r, "Stop", <-stopped)
			wantNilOr(r, "RunOnce", <-ended, relaybus.ErrStopped)
			r.wantGoroutines(0)
			r.wantFree(5-int(r.handled.Load()), "h")
		}},
		{"while an answer of settling does not come", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			arrived := make(chan struct{}, 100)
			r.store.hold("settle", func(ctx context.Context) error {
				arrived <- struct{}{}
				return hangs(ctx)
			})
			r.publish(1)
			r.start()
			<-arrived
			r.pass(50 * time.Millisecond)
			if err := r.stopThrice(r.brief()); err == nil {
				r.Error("Stop returned nil, and lost the completion")
			}
			r.wantGoroutines(0)
			r.wantFree(1, "h")
		}},
		{"while a lane can't be given back", func(r *rig) {
			r.open(nil, r.quick("h", time.Millisecond))
			r.publish(1)
			r.start()
			<-r.started
			r.store.hold("relinquish", pick(r, hangs, refuses))
			if err := r.stopThrice(r.brief()); err == nil {
				r.Error("Stop returned nil, and could not give its lanes back")
			}
			r.wantGoroutines(0)
		}},
	}
}

// publishFirst publishes before the bus of the rig exists.
func (r *rig) publishFirst(n int) {
	r.Helper()
	bus, err := relaybus.New(r.db.Instance(), relaybus.Config{TransactionMode: relaybus.Optional, NoCatalog: true})
	if err != nil {
		r.Fatalf("New: %v", err)
	}
	if err := bus.Subscribe(r.quick("h", 0)); err != nil {
		r.Fatalf("Subscribe: %v", err)
	}
	one := r.bus
	r.bus = bus
	r.publish(n)
	r.bus = one
}
