package shutdown_test

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/transport"
	"github.com/relaybus-go/relaybus/transport/memtransport"
)

// slowTransport is a transport whose Connect and Close can be held up.
type slowTransport struct {
	name           string
	connect, close func(ctx context.Context) error
	connects       chan struct{}
	closes         atomic.Int64
}

var _ transport.Transport = (*slowTransport)(nil)

func newSlowTransport(name string) *slowTransport {
	return &slowTransport{name: name, connects: make(chan struct{}, 10)}
}

func (s *slowTransport) Name() string               { return s.name }
func (*slowTransport) Ready() error                 { return nil }
func (*slowTransport) Features() transport.Features { return transport.Features{} }
func (s *slowTransport) Connect(ctx context.Context) error {
	s.connects <- struct{}{}
	return call(ctx, s.connect)
}

func (s *slowTransport) Close(ctx context.Context) error {
	s.closes.Add(1)
	return call(ctx, s.close)
}

func call(ctx context.Context, f func(context.Context) error) error {
	if f == nil {
		return nil
	}
	return f(ctx)
}

func transportScenarios() []scenario {
	return []scenario{
		{"while a transport does not connect", func(r *rig) {
			first, other := newSlowTransport("first"), newSlowTransport("second")
			other.connect = hangs
			r.open(func(c *relaybus.Config) { c.Transports = []transport.Transport{first, other} }, r.quick("h", 0))
			ended := make(chan error, 1)
			go func() { ended <- r.bus.Start(context.Background()) }()
			<-other.connects
			r.pass(50 * time.Millisecond)
			wantNil(r, "Stop", r.stopThrice(r.ample()))
			wantIs(r, "Start", <-ended, relaybus.ErrStopped)
			if first.closes.Load() != 1 || other.closes.Load() != 0 {
				r.Errorf("the connected transport was closed %d times, the other %d times", first.closes.Load(), other.closes.Load())
			}
			r.wantGoroutines(0)
		}},
		{"while a transport neither connects nor another closes", func(r *rig) {
			first, other := newSlowTransport("first"), newSlowTransport("second")
			first.close, other.connect = hangs, hangs
			r.open(func(c *relaybus.Config) { c.Transports = []transport.Transport{first, other} }, r.quick("h", 0))
			ctx, cancel := context.WithCancelCause(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- r.bus.Start(ctx) }()
			<-other.connects
			cancel(errStarted)
			wantIs(r, "Start", <-ended, errStarted)
			if err := r.stop(r.ample()); err == nil || !strings.Contains(err.Error(), "first") {
				r.Errorf("Stop returned %v, want an error that names the transport", err)
			}
			r.wantGoroutines(0)
		}},
		{"while a transport does not close", func(r *rig) {
			first, other := newSlowTransport("first"), newSlowTransport("second")
			other.close = hangs
			r.open(func(c *relaybus.Config) { c.Transports = []transport.Transport{first, other} }, r.quick("h", 5*time.Millisecond))
			r.publish(3)
			r.start()
			<-r.started
			err := r.stop(pick(r, r.brief(), 3*r.brief()))
			if err == nil || !strings.Contains(err.Error(), "second") || strings.Contains(err.Error(), "first") {
				r.Errorf("Stop returned %v, want an error that names the transport", err)
			}
			if first.closes.Load() != 1 {
				r.Errorf("the other transport was closed %d times", first.closes.Load())
			}
			r.wantGoroutines(0)
			r.wantFree(3-int(r.handled.Load()), "h")
		}},
		{"while a transport does not close and a handler ignores its context", func(r *rig) {
			slow := newSlowTransport("slow")
			slow.close = hangs
			r.open(func(c *relaybus.Config) { c.Transports = []transport.Transport{slow} }, r.hung())
			r.publish(1)
			r.start()
			<-r.started
			err := r.stop(r.brief())
			wantStillRunning(r, err, "hung")
			if err != nil && !strings.Contains(err.Error(), "slow") {
				r.Errorf("Stop returned %v, want an error that names the transport, too", err)
			}
			r.wantGoroutines(1)
			r.wantFree(1, "hung")
		}},
		{"while a message is received and the store is cut", func(r *rig) {
			broker := memtransport.NewBroker()
			broker.Queue("in")
			r.open(func(c *relaybus.Config) {
				c.Transports = []transport.Transport{broker.Transport("mem")}
				c.Subscriptions = []relaybus.Subscription{{ID: "s", Transport: "mem", Source: "in"}}
			}, r.quick("h", 5*time.Millisecond))
			r.start()
			arrived := make(chan struct{}, 100)
			r.store.hold("transact", func(ctx context.Context) error {
				arrived <- struct{}{}
				return hangs(ctx)
			})
			wantNil(r, "Put", broker.Put("in", transport.Message{ID: "m", Type: "t", Payload: []byte(`1`), CreatedAt: time.Now()}))
			<-arrived
			_ = r.stopThrice(r.brief()) // whether the message is left is the consumer's affair; that it returns is what counts
			r.wantGoroutines(0)
		}},
		{"while a message is received, the store is cut and a handler ignores its context", func(r *rig) {
			broker := memtransport.NewBroker()
			broker.Queue("in")
			r.open(func(c *relaybus.Config) {
				c.Transports = []transport.Transport{broker.Transport("mem")}
				c.Subscriptions = []relaybus.Subscription{{ID: "s", Transport: "mem", Source: "in"}}
			}, r.hung())
			r.start()
			r.publish(1)
			<-r.started
			arrived := make(chan struct{}, 100)
			r.store.hold("transact", func(ctx context.Context) error {
				arrived <- struct{}{}
				return hangs(ctx)
			})
			wantNil(r, "Put", broker.Put("in", transport.Message{ID: "m", Type: "t", Payload: []byte(`1`), CreatedAt: time.Now()}))
			<-arrived
			wantStillRunning(r, r.stop(r.brief()), "hung")
			r.wantGoroutines(1)
			r.wantFree(1, "hung")
		}},
	}
}
