package transporttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/transport"
	"github.com/relaybus-go/relaybus/transport/memtransport"
	"github.com/relaybus-go/relaybus/transport/transporttest"
)

// mutant is a transport that breaks one promise; nil functions keep theirs.
type mutant struct {
	*memtransport.Transport

	declare   func(t *memtransport.Transport, topology transport.Topology) error
	connect   func(ctx context.Context, t *memtransport.Transport) error
	close     func(ctx context.Context, t *memtransport.Transport) error
	ready     func(t *memtransport.Transport) error
	send      func(ctx context.Context, t *memtransport.Transport, destination string, m transport.Message) error
	subscribe func(ctx context.Context, t *memtransport.Transport, s transport.Subscription) (transport.Consumer, error)
}

func (m *mutant) Declare(topology transport.Topology) error {
	if m.declare != nil {
		return m.declare(m.Transport, topology)
	}
	return m.Transport.Declare(topology)
}

func (m *mutant) Connect(ctx context.Context) error {
	if m.connect != nil {
		return m.connect(ctx, m.Transport)
	}
	return m.Transport.Connect(ctx)
}

func (m *mutant) Close(ctx context.Context) error {
	if m.close != nil {
		return m.close(ctx, m.Transport)
	}
	return m.Transport.Close(ctx)
}

func (m *mutant) Ready() error {
	if m.ready != nil {
		return m.ready(m.Transport)
	}
	return m.Transport.Ready()
}

func (m *mutant) Send(ctx context.Context, destination string, message transport.Message) error {
	if m.send != nil {
		return m.send(ctx, m.Transport, destination, message)
	}
	return m.Transport.Send(ctx, destination, message)
}

func (m *mutant) Subscribe(ctx context.Context, s transport.Subscription) (transport.Consumer, error) {
	if m.subscribe != nil {
		return m.subscribe(ctx, m.Transport, s)
	}
	return m.Transport.Subscribe(ctx, s)
}

// receiving changes what the transport does with a message.
func receiving(change func(ctx context.Context, in transport.Inbound, receive func(context.Context, transport.Inbound) error) error) mutant {
	return mutant{subscribe: func(ctx context.Context, t *memtransport.Transport, s transport.Subscription) (transport.Consumer, error) {
		if receive := s.Receive; receive != nil {
			s.Receive = func(ctx context.Context, in transport.Inbound) error { return change(ctx, in, receive) }
		}
		return t.Subscribe(ctx, s)
	}}
}

// subscribing changes the subscription.
func subscribing(change func(ctx context.Context, s *transport.Subscription)) mutant {
	return mutant{subscribe: func(ctx context.Context, t *memtransport.Transport, s transport.Subscription) (transport.Consumer, error) {
		change(ctx, &s)
		return t.Subscribe(ctx, s)
	}}
}

// failing changes the error of Send.
func failing(change func(err error) error) mutant {
	return mutant{send: func(ctx context.Context, t *memtransport.Transport, destination string, m transport.Message) error {
		if err := t.Send(ctx, destination, m); err != nil {
			return change(err)
		}
		return nil
	}}
}

// sending changes the message on its way.
func sending(change func(m *transport.Message)) mutant {
	return mutant{send: func(ctx context.Context, t *memtransport.Transport, destination string, m transport.Message) error {
		change(&m)
		return t.Send(ctx, destination, m)
	}}
}

// hasty is a consumer whose Stop does not wait.
type hasty struct{ transport.Consumer }

func (h hasty) Stop(ctx context.Context) error {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := h.Consumer.Stop(ended); !errors.Is(err, transport.ErrTimeout) {
		return err
	}
	return nil
}

type mutation struct {
	name string
	// caught is the case that must find it.
	caught string
	mutant mutant
}

func mutations() []mutation {
	return []mutation{
		{"confirms what is unroutable", "F03UnroutableIsNoSuccess", failing(func(err error) error {
			if errors.Is(err, transport.ErrUnroutable) {
				return nil
			}
			return err
		})},
		{"untyped errors", "F03UnroutableIsNoSuccess", failing(func(err error) error { return errors.New(err.Error()) })},
		{"too large is retried", "F13TooLargeIsPermanent", failing(func(error) error {
			return transport.NewError("send message", transport.ErrNacked, "", nil)
		})},
		{"refused is an outage", "F13RefusedIsPermanent", failing(func(error) error {
			return transport.NewError("send message", transport.ErrUnavailable, "", nil)
		})},
		{"nacked is permanent", "F65NackedIsRetried", failing(func(error) error {
			return transport.NewError("send message", transport.ErrRefused, "", nil)
		})},
		{"lost confirmation is permanent", "F49LostConfirmation", failing(func(error) error {
			return transport.NewError("send message", transport.ErrRefused, "", nil)
		})},
		{"drops the key", "X1SendIsReceivedUnchanged", sending(func(m *transport.Message) { m.Key = "" })},
		{"drops the headers", "X1SendIsReceivedUnchanged", sending(func(m *transport.Message) { m.Headers = nil })},
		{"one key for all", "F49KeysKeepTheirOrder", sending(func(m *transport.Message) { m.Key = "" })},
		{"decodes the payload", "X1PayloadsKeepEveryByte", sending(func(m *transport.Message) {
			var v any
			if json.Unmarshal(m.Payload, &v) == nil {
				m.Payload, _ = json.Marshal(v)
			}
		})},
		{"send ignores its context", "F65SendToAFrozenBroker", mutant{
			send: func(ctx context.Context, t *memtransport.Transport, destination string, m transport.Message) error {
				return t.Send(context.WithoutCancel(ctx), destination, m)
			},
		}},
		{"connect ignores an outage", "X4ConnectToADeadBroker", mutant{
			connect: func(ctx context.Context, t *memtransport.Transport) error {
				if err := t.Connect(ctx); !errors.Is(err, transport.ErrUnavailable) {
					return err
				}
				return nil
			},
		}},
		{"connect ignores its context", "F65ConnectToAFrozenBroker", mutant{
			connect: func(ctx context.Context, t *memtransport.Transport) error {
				return t.Connect(context.WithoutCancel(ctx))
			},
		}},
		{"always ready", "X4OutageDelaysAndLosesNothing", mutant{ready: func(*memtransport.Transport) error { return nil }}},
		{"acknowledges early", "F24AcknowledgedAfterReceiveOnly", receiving(
			func(ctx context.Context, in transport.Inbound, receive func(context.Context, transport.Inbound) error) error {
				go func() { _ = receive(ctx, in) }()
				return nil
			})},
		{"drops what failed", "X1FailedMessageIsHandedOverAgain", receiving(
			func(ctx context.Context, in transport.Inbound, receive func(context.Context, transport.Inbound) error) error {
				_ = receive(ctx, in)
				return nil
			})},
		{"retries what was rejected", "F14RejectedIsNotHandedOverAgain", receiving(
			func(ctx context.Context, in transport.Inbound, receive func(context.Context, transport.Inbound) error) error {
				if err := receive(ctx, in); err != nil {
					return errors.New(err.Error())
				}
				return nil
			})},
		{"drops what was rejected", "F14RejectedIsNotHandedOverAgain", receiving(
			func(ctx context.Context, in transport.Inbound, receive func(context.Context, transport.Inbound) error) error {
				err := receive(ctx, in)
				if errors.Is(err, transport.ErrReject) {
					return nil
				}
				return err
			})},
		{"drops garbage", "F14GarbageIsHandedOverAndFlowsOn", receiving(
			func(ctx context.Context, in transport.Inbound, receive func(context.Context, transport.Inbound) error) error {
				if in.Malformed != nil {
					return nil //nolint:nilerr // that is the fault
				}
				return receive(ctx, in)
			})},
		{"retries at full speed", "X1FailedMessageIsHandedOverAgain", subscribing(func(_ context.Context, s *transport.Subscription) {
			if s.Backoff != nil {
				s.Backoff = func(ctx context.Context, _ int) error { return ctx.Err() }
			}
		})},
		{"fetches ahead", "F23InFlightIsBounded", subscribing(func(_ context.Context, s *transport.Subscription) { s.InFlight *= 2 })},
		{"hands over to one only", "F23InFlightIsBounded", subscribing(func(_ context.Context, s *transport.Subscription) { s.InFlight = 1 })},
		{"lives on the context of subscribe", "F06ContextsBoundTheirCallsOnly", subscribing(
			func(outer context.Context, s *transport.Subscription) {
				receive := s.Receive
				s.Receive = func(_ context.Context, in transport.Inbound) error { return receive(outer, in) }
			})},
		{"backoff outlives stop", "F06StopEndsBackoff", subscribing(func(_ context.Context, s *transport.Subscription) {
			backoff := s.Backoff
			s.Backoff = func(ctx context.Context, failures int) error {
				return backoff(context.WithoutCancel(ctx), failures)
			}
		})},
		{"stop does not wait", "F06StopWaitsForReceive", mutant{
			subscribe: func(ctx context.Context, t *memtransport.Transport, s transport.Subscription) (transport.Consumer, error) {
				c, err := t.Subscribe(ctx, s)
				if err != nil {
					return nil, err
				}
				return hasty{c}, nil
			},
		}},
		{"close ignores its context", "F24AcknowledgedAfterReceiveOnly", mutant{
			close: func(ctx context.Context, t *memtransport.Transport) error { return t.Close(context.WithoutCancel(ctx)) },
		}},
		{"close leaves consumers", "F06CloseStopsConsumers", mutant{
			close: func(context.Context, *memtransport.Transport) error { return nil },
		}},
		{"close fails when closed", "F06CloseIsFinalAndIdempotent", mutant{
			close: func(ctx context.Context, t *memtransport.Transport) error {
				if err := t.Ready(); errors.Is(err, transport.ErrClosed) {
					return err
				}
				return t.Close(ctx)
			},
		}},
		{"close leaves a goroutine", "F06NoGoroutineAfterClose", mutant{
			close: func(ctx context.Context, t *memtransport.Transport) error {
				go func() { select {} }()
				return t.Close(ctx)
			},
		}},
		{"a failed connect leaves a goroutine", "F65DeclaredTopologyIsChecked", mutant{
			connect: func(ctx context.Context, t *memtransport.Transport) error {
				err := t.Connect(ctx)
				if err != nil {
					go func() { select {} }()
				}
				return err
			},
		}},
		{"does not check the topology", "F65DeclaredTopologyIsChecked", mutant{
			declare: func(*memtransport.Transport, transport.Topology) error { return nil },
		}},
		{"does not check the subscription", "F65SubscribeChecks", subscribing(func(_ context.Context, s *transport.Subscription) {
			if s.ID == "" {
				s.ID = "anonymous"
			}
		})},
	}
}

const mutantVariable = "TRANSPORTTEST_MUTANT"

// TestCasesOnMutant is what TestMutantsAreCaught starts with a mutant. Without
// one it runs every case on the transport as it is.
func TestCasesOnMutant(t *testing.T) {
	t.Parallel()
	name := os.Getenv(mutantVariable)
	var chosen mutant
	if name != "" {
		i := slices.IndexFunc(mutations(), func(m mutation) bool { return m.name == name })
		if i < 0 {
			t.Fatalf("there is no mutant %q", name)
		}
		chosen = mutations()[i].mutant
	}
	transporttest.Run(t, transporttest.Backend{
		Bubble: true,
		Open:   func(*testing.T) transporttest.Broker { return broker(chosen) },
	})
}

func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(transporttest.Cases(), m.caught) {
				t.Fatalf("there is no case %q", m.caught)
			}
			output, err := run(t, "^TestCasesOnMutant$/^"+m.caught+"$", mutantVariable+"="+m.name)
			if _, ok := errors.AsType[*exec.ExitError](err); !ok {
				t.Fatalf("%s does not fail on a transport that %s (%v):\n%s", m.caught, m.name, err, output)
			}
			if !strings.Contains(output, "TestCasesOnMutant/"+m.caught) {
				t.Errorf("it fails somewhere else:\n%s", output)
			}
		})
	}
}

// run starts this test binary.
func run(t *testing.T, pattern string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern, "-test.timeout=1m")
	cmd.Env = append(os.Environ(), env...)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

func broker(m mutant) transporttest.Broker {
	const maxBytes = 10_000
	b := memtransport.NewBroker()
	b.SetMaxBytes(maxBytes)
	links := 0
	return transporttest.Broker{
		New: func() transport.Transport {
			made := m
			made.Transport = b.Transport("memory")
			return &made
		},
		Link: func() (string, string) {
			links++
			name := fmt.Sprintf("link %d", links)
			b.Queue(name)
			return name, name
		},
		Missing: func() string { return "nowhere" },
		Put: func(destination string, body []byte) {
			_ = b.PutRaw(destination, body)
		},
		TooLarge:    maxBytes + 1,
		Cut:         b.Disconnect,
		Down:        b.Down,
		Up:          b.Up,
		Freeze:      b.Freeze,
		Thaw:        b.Thaw,
		Remove:      func(destination, _ string) { b.Remove(destination) },
		Restore:     func(destination, _ string) { b.Queue(destination) },
		Refuse:      func(destination string) { b.Refuse(destination, transport.ErrRefused) },
		Nack:        func(destination string) { b.Refuse(destination, transport.ErrNacked) },
		Accept:      b.Accept,
		LoseConfirm: func() { b.LoseConfirms(1) },
	}
}
