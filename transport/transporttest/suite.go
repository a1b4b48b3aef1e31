package transporttest

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/transport"
)

// suite is one running case.
type suite struct {
	*testing.T

	backend Backend
	broker  Broker
	ids     atomic.Int64
}

func newSuite(t *testing.T, b Backend, broker Broker) *suite {
	t.Helper()
	return &suite{T: t, backend: b, broker: broker}
}

// wait returns a context for a step that is expected to succeed. It outlives
// the test's own, as cleanups use it, too.
func (s *suite) wait() context.Context {
	return s.within(s.backend.Wait)
}

// short returns a context for a call that is expected to run into its end.
func (s *suite) short() context.Context {
	return s.within(s.backend.Short)
}

func (s *suite) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), d)
	s.Cleanup(cancel)
	return ctx
}

// ended returns a context that has ended.
func (s *suite) ended() context.Context {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	return ctx
}

// peer is a transport with its abilities at hand.
type peer struct {
	transport.Transport
	transport.Sender
	transport.Receiver
}

// fresh returns a transport that is not connected.
func (s *suite) fresh() peer {
	s.Helper()
	t := s.broker.New()
	p := peer{Transport: t}
	p.Sender, _ = t.(transport.Sender)
	p.Receiver, _ = t.(transport.Receiver)
	if p.Sender == nil || p.Receiver == nil {
		s.Fatalf("%T is not both a Sender and a Receiver", t)
	}
	return p
}

// open returns a connected transport that is closed at the end.
func (s *suite) open() peer {
	s.Helper()
	p := s.fresh()
	if err := p.Connect(s.wait()); err != nil {
		s.Fatalf("connect: %v", err)
	}
	s.Cleanup(func() {
		if err := p.Close(s.wait()); err != nil {
			s.Errorf("close: %v", err)
		}
	})
	return p
}

// message returns a message that no other call returned.
func (s *suite) message() transport.Message {
	id := "m-" + strconv.FormatInt(s.ids.Add(1), 10)
	return transport.Message{
		ID:        id,
		Type:      "order.placed.v1",
		Source:    "orders",
		CreatedAt: time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC),
		Payload:   []byte(`{"id":"` + id + `"}`),
	}
}

// keyed returns a message with a key.
func (s *suite) keyed(key string) transport.Message {
	m := s.message()
	m.Key = key
	return m
}

func (s *suite) send(p peer, destination string, m transport.Message) {
	s.Helper()
	if err := p.Send(s.wait(), destination, m); err != nil {
		s.Fatalf("send %s: %v", m.ID, err)
	}
}

// sendAgain sends until the transport reports success, as the bus does.
func (s *suite) sendAgain(p peer, destination string, m transport.Message) {
	s.Helper()
	ctx := s.wait()
	for {
		err := p.Send(ctx, destination, m)
		if err == nil {
			return
		}
		s.typed(err)
		if !pause(ctx) {
			s.Fatalf("send %s: %v", m.ID, err)
		}
	}
}

// pause lets some time pass between two looks at what changes by itself.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(5 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// eventually waits until the condition holds.
func (s *suite) eventually(what string, holds func() bool) {
	s.Helper()
	ctx := s.wait()
	for !holds() {
		if !pause(ctx) {
			s.Fatalf("it does not come to pass that %s", what)
		}
	}
}

// typed checks that an error is one of the contract.
func (s *suite) typed(err error) {
	s.Helper()
	var e *transport.Error
	if !errors.As(err, &e) {
		s.Fatalf("%v (%T) is no *transport.Error", err, err)
	}
	if e.Op == "" || e.Class == nil {
		s.Fatalf("%v has no step or no class", err)
	}
}

// class checks that an error is of a class.
func (s *suite) class(err, class error) {
	s.Helper()
	if err == nil {
		s.Fatalf("no error, want: %v", class)
	}
	s.typed(err)
	if !errors.Is(err, class) {
		s.Fatalf("got %v, want: %v", err, class)
	}
}

// outage checks that an error says that the broker is what failed.
func (s *suite) outage(err error) {
	s.Helper()
	if err == nil {
		s.Fatal("no error, want one that is an outage")
	}
	s.typed(err)
	if !transport.IsOutage(err) || transport.IsPermanent(err) {
		s.Fatalf("got %v, want an outage", err)
	}
}

// finish waits for a result of a call that another goroutine makes.
func finish[T any](s *suite, what string, results <-chan T) T {
	s.Helper()
	select {
	case r := <-results:
		return r
	case <-s.wait().Done():
		s.Fatalf("%s does not return", what)
		panic("unreachable")
	}
}

// background makes a call in a goroutine and returns where its error arrives.
func background(call func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	return result
}
