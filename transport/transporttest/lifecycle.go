package transporttest

import (
	"context"
	"strings"

	"github.com/relaybus-go/relaybus/transport"
)

func lifecycleCases() []testCase {
	return []testCase{
		{"F06BeforeConnect", nothing, beforeConnect},
		{"F06CloseIsFinalAndIdempotent", nothing, closeIsFinal},
		{"F06ContextsBoundTheirCallsOnly", nothing, contextsBoundTheirCalls},
		{"F06EndedContextDoesNothing", nothing, endedContext},
		{"F06StopWaitsForReceive", nothing, stopWaits},
		{"F06StopEndsBackoff", nothing, stopEndsBackoff},
		{"F06StopObeysItsContext", nothing, stopObeysItsContext},
		{"F06CloseStopsConsumers", nothing, closeStopsConsumers},
		{"F06NoGoroutineAfterClose", nothing, noGoroutineAfterClose},
	}
}

func subscription(source string) transport.Subscription {
	return transport.Subscription{
		ID: "reader", Source: source,
		Receive: func(context.Context, transport.Inbound) error { return nil },
		Backoff: func(ctx context.Context, _ int) error { return ctx.Err() },
	}
}

func beforeConnect(s *suite) {
	destination, source := s.broker.Link()
	p := s.fresh()
	if p.Name() == "" {
		s.Error("the transport has no name")
	}
	s.class(p.Ready(), transport.ErrNotConnected)
	s.class(p.Send(s.wait(), destination, s.message()), transport.ErrNotConnected)
	_, err := p.Subscribe(s.wait(), subscription(source))
	s.class(err, transport.ErrNotConnected)
	if err := p.Close(s.wait()); err != nil {
		s.Errorf("close before connect: %v", err)
	}
	s.class(p.Connect(s.wait()), transport.ErrClosed)
}

func closeIsFinal(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	s.class(p.Connect(s.wait()), transport.ErrConfiguration)
	if err := p.Ready(); err != nil {
		s.Errorf("not ready after a second connect: %v", err)
	}
	in := s.subscribe(p, source, 2)
	ctx := s.wait()
	var closes []<-chan error
	for range 3 {
		closes = append(closes, background(func() error { return p.Close(ctx) }))
	}
	for _, c := range closes {
		if err := finish(s, "close", c); err != nil {
			s.Errorf("close: %v", err)
		}
	}
	if err := p.Close(s.ended()); err != nil {
		s.Errorf("close of a closed transport: %v", err)
	}
	s.class(p.Ready(), transport.ErrClosed)
	s.class(in.consumer.Ready(), transport.ErrClosed)
	s.class(p.Send(s.wait(), destination, s.message()), transport.ErrClosed)
	s.class(p.Connect(s.wait()), transport.ErrClosed)
	_, err := p.Subscribe(s.wait(), subscription(source))
	s.class(err, transport.ErrClosed)
	if err := in.consumer.Stop(s.wait()); err != nil {
		s.Errorf("stop after close: %v", err)
	}
}

func contextsBoundTheirCalls(s *suite) {
	destination, source := s.broker.Link()
	p := s.fresh()
	ctx, cancel := context.WithCancel(s.Context())
	if err := p.Connect(ctx); err != nil {
		s.Fatal(err)
	}
	received := make(chan error, 1)
	sub := subscription(source)
	sub.Receive = func(ctx context.Context, _ transport.Inbound) error {
		received <- ctx.Err()
		return nil
	}
	if _, err := p.Subscribe(ctx, sub); err != nil {
		s.Fatal(err)
	}
	cancel()
	s.send(p, destination, s.message())
	if err := finish(s, "receive", received); err != nil {
		s.Errorf("the context of Subscribe reached the message: %v", err)
	}
	if err := p.Ready(); err != nil {
		s.Errorf("not ready after the context of Connect has ended: %v", err)
	}
	if err := p.Close(s.wait()); err != nil {
		s.Error(err)
	}
}

func endedContext(s *suite) {
	destination, source := s.broker.Link()
	unconnected := s.fresh()
	s.class(unconnected.Connect(s.ended()), transport.ErrTimeout)
	s.class(unconnected.Ready(), transport.ErrNotConnected)
	if err := unconnected.Close(s.wait()); err != nil {
		s.Error(err)
	}
	p := s.open()
	s.class(p.Send(s.ended(), destination, s.message()), transport.ErrTimeout)
	_, err := p.Subscribe(s.ended(), subscription(source))
	s.class(err, transport.ErrTimeout)
	if err := p.Ready(); err != nil {
		s.Errorf("not ready after calls with an ended context: %v", err)
	}
	s.subscribe(p, source, 1).quiet()
}

func stopWaits(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 1)
	first, second := s.message(), s.message()
	s.send(p, destination, first)
	s.send(p, destination, second)
	h := in.next()
	ctx := s.wait()
	stopped := []<-chan error{
		background(func() error { return in.consumer.Stop(ctx) }),
		background(func() error { return in.consumer.Stop(ctx) }),
	}
	s.eventually("the consumer takes notice", func() bool { return in.consumer.Ready() != nil })
	s.class(in.consumer.Ready(), transport.ErrClosed)
	if err := p.Ready(); err != nil {
		s.Errorf("a consumer that stops makes the transport not ready: %v", err)
	}
	select {
	case err := <-stopped[0]:
		s.Fatalf("stop returns %v while a message is handled", err)
	case <-h.ended:
		s.Fatal("stop ends the context of a message at once")
	default:
	}
	h.ack()
	for _, stop := range stopped {
		if err := finish(s, "stop", stop); err != nil {
			s.Errorf("stop: %v", err)
		}
	}
	in.quiet()
	// The first was acknowledged, the second not touched.
	again := s.subscribe(p, source, 1)
	next := again.next()
	s.same(next.Message, second)
	next.ack()
	again.quiet()
}

func stopEndsBackoff(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	waiting := make(chan struct{}, 1)
	in := s.subscribe(p, source, 1, func(sub *transport.Subscription) {
		sub.Backoff = func(ctx context.Context, _ int) error {
			waiting <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
	})
	m := s.message()
	s.send(p, destination, m)
	in.next().fail(errTry)
	finish(s, "backoff", waiting)
	if err := in.consumer.Stop(s.wait()); err != nil {
		s.Errorf("stop: %v", err)
	}
	h := s.subscribe(p, source, 1).next()
	s.same(h.Message, m)
	h.ack()
}

func stopObeysItsContext(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 1)
	m := s.message()
	s.send(p, destination, m)
	h := in.next()
	ctx := s.short()
	err := finish(s, "stop", background(func() error { return in.consumer.Stop(ctx) }))
	s.class(err, transport.ErrTimeout)
	if !strings.Contains(err.Error(), "reader") {
		s.Errorf("%q does not name the subscription", err)
	}
	finish(s, "context of the message", h.ended)
	h.ack()
	if err := in.consumer.Stop(s.wait()); err != nil {
		s.Errorf("stop after the message has ended: %v", err)
	}
	again := s.subscribe(p, source, 1)
	next := again.next()
	s.same(next.Message, m)
	next.ack()
	again.quiet()
}

func closeStopsConsumers(s *suite) {
	destination, source := s.broker.Link()
	p := s.fresh()
	if err := p.Connect(s.wait()); err != nil {
		s.Fatal(err)
	}
	in := s.subscribe(p, source, 1)
	s.send(p, destination, s.message())
	h := in.next()
	ctx := s.wait()
	closed := background(func() error { return p.Close(ctx) })
	s.eventually("the consumer takes notice", func() bool { return in.consumer.Ready() != nil })
	select {
	case err := <-closed:
		s.Fatalf("close returns %v while a message is handled", err)
	default:
	}
	h.ack()
	if err := finish(s, "close", closed); err != nil {
		s.Errorf("close: %v", err)
	}
	s.subscribe(s.open(), source, 1).quiet()
}

func noGoroutineAfterClose(s *suite) {
	destination, source := s.broker.Link()
	leaks := s.watch(func() {
		for range 5 {
			p := s.fresh()
			if err := p.Connect(s.wait()); err != nil {
				s.Fatal(err)
			}
			in := s.subscribe(p, source, 4)
			m := s.message()
			s.send(p, destination, m)
			in.collect(map[string]bool{m.ID: true})
			if err := p.Close(s.wait()); err != nil {
				s.Fatal(err)
			}
		}
	})
	leaks.none()
}
