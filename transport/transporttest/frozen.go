package transporttest

import (
	"context"
	"errors"

	"github.com/relaybus-go/relaybus/transport"
)

func frozenCases() []testCase {
	freeze := func(b Broker) bool { return b.Freeze != nil && b.Thaw != nil }
	return []testCase{
		{"F65SendToAFrozenBroker", freeze, sendToAFrozenBroker},
		{"F65ConnectToAFrozenBroker", freeze, connectToAFrozenBroker},
		{"F41SendsGoOnWhenTheBrokerThaws", freeze, sendsGoOn},
		{"F41CloseWhileTheBrokerIsFrozen", freeze, closeWhileFrozen},
	}
}

func sendToAFrozenBroker(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	s.broker.Freeze()
	m := s.message()
	ctx := s.short()
	err := finish(s, "send", background(func() error { return p.Send(ctx, destination, m) }))
	s.outage(err)
	if errors.Is(err, transport.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("%v hides that the deadline passed", err)
	}
	s.eventually("the transport is not ready", func() bool { return p.Ready() != nil })

	cancelled, cancel := context.WithCancel(s.Context())
	result := background(func() error { return p.Send(cancelled, destination, m) })
	cancel()
	s.outage(finish(s, "cancelled send", result))

	s.broker.Thaw()
	s.sendAgain(p, destination, m)
	s.eventually("the transport is ready again", func() bool { return p.Ready() == nil })
	in := s.subscribe(p, source, 1)
	h := in.next()
	s.same(h.Message, m)
	h.ack()
}

func connectToAFrozenBroker(s *suite) {
	s.broker.Freeze()
	leaks := s.watch(func() {
		p := s.fresh()
		ctx := s.short()
		s.outage(finish(s, "connect", background(func() error { return p.Connect(ctx) })))
	})
	leaks.none()

	p := s.fresh()
	ctx := s.wait()
	connecting := background(func() error { return p.Connect(ctx) })
	if err := finish(s, "close", background(func() error { return p.Close(ctx) })); err != nil {
		s.Errorf("close during connect: %v", err)
	}
	s.class(finish(s, "connect", connecting), transport.ErrClosed)
	s.broker.Thaw()
}

func sendsGoOn(s *suite) {
	const senders = 20
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(s.open(), source, 4)
	s.broker.Freeze()
	ids := map[string]bool{}
	var results []<-chan error
	for range senders {
		m := s.message()
		ids[m.ID] = true
		ctx := s.wait()
		results = append(results, background(func() error {
			for err := p.Send(ctx, destination, m); err != nil; err = p.Send(ctx, destination, m) {
				if !transport.IsOutage(err) || !pause(ctx) {
					return err
				}
			}
			return nil
		}))
	}
	in.quiet()
	s.broker.Thaw()
	for _, result := range results {
		if err := finish(s, "send", result); err != nil {
			s.Errorf("send: %v", err)
		}
	}
	in.collect(ids)
}

func closeWhileFrozen(s *suite) {
	destination, source := s.broker.Link()
	leaks := s.watch(func() {
		p := s.fresh()
		if err := p.Connect(s.wait()); err != nil {
			s.Fatal(err)
		}
		s.subscribe(p, source, 2)
		s.broker.Freeze()
		var sends []<-chan error
		for range 10 {
			m, ctx := s.message(), s.wait()
			sends = append(sends, background(func() error { return p.Send(ctx, destination, m) }))
		}
		// A broker that does not answer may keep Close from saying goodbye, but
		// not beyond its context.
		ctx := s.short()
		if err := finish(s, "close", background(func() error { return p.Close(ctx) })); err != nil {
			s.class(err, transport.ErrTimeout)
		}
		for _, send := range sends {
			s.outage(finish(s, "send", send))
		}
		s.broker.Thaw()
		if err := p.Close(s.wait()); err != nil {
			s.Errorf("close: %v", err)
		}
	})
	leaks.none()
}
