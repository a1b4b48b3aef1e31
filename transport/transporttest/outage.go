package transporttest

import (
	"errors"

	"github.com/relaybus-go/relaybus/transport"
)

func outageCases() []testCase {
	down := func(b Broker) bool { return b.Down != nil && b.Up != nil }
	cut := func(b Broker) bool { return b.Cut != nil }
	return []testCase{
		{"X4OutageDelaysAndLosesNothing", down, outageDelays},
		{"X4ConnectToADeadBroker", down, connectToADeadBroker},
		{"F23ConsumerComesBackAfterCuts", cut, consumerComesBack},
		{"F23LateAcknowledgementIsDropped", cut, lateAcknowledgement},
		{"F23RemovedSource", func(b Broker) bool { return b.Remove != nil && b.Restore != nil }, removedSource},
	}
}

func outageDelays(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 1)
	before, during := s.keyed("k"), s.keyed("k")
	s.send(p, destination, before)
	h := in.next()

	s.broker.Down()
	s.eventually("the transport is not ready", func() bool { return p.Ready() != nil })
	s.typed(p.Ready())
	if err := in.consumer.Ready(); err == nil {
		s.Error("the consumer is ready while the broker is down")
	}
	s.outage(p.Send(s.short(), destination, during))
	finish(s, "context of the message", h.ended)
	h.ack()

	s.broker.Up()
	s.eventually("the transport is ready again", func() bool { return p.Ready() == nil })
	s.sendAgain(p, destination, during)
	// The acknowledgement was too late for the broker, which may or may not
	// have got it.
	seen := in.collect(map[string]bool{during.ID: true})
	if seen[before.ID] > 1 || seen[during.ID] > 2 {
		s.Errorf("received %v after the outage", seen)
	}
	in.quiet()
}

func connectToADeadBroker(s *suite) {
	s.broker.Down()
	leaks := s.watch(func() {
		p := s.fresh()
		s.outage(p.Connect(s.short()))
		s.class(p.Ready(), transport.ErrNotConnected)
	})
	leaks.none()
	p := s.fresh()
	s.outage(p.Connect(s.short()))
	s.broker.Up()
	s.eventually("a transport connects after it has failed to", func() bool { return p.Connect(s.wait()) == nil })
	if err := p.Ready(); err != nil {
		s.Errorf("not ready: %v", err)
	}
	if err := p.Close(s.wait()); err != nil {
		s.Error(err)
	}
}

func consumerComesBack(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 4)
	ids := map[string]bool{}
	for range 5 {
		for range 20 {
			m := s.message()
			ids[m.ID] = true
			s.sendAgain(p, destination, m)
		}
		s.broker.Cut()
	}
	in.collect(ids)
	s.eventually("the transport is ready again", func() bool { return p.Ready() == nil })
}

func lateAcknowledgement(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 2)
	m := s.message()
	s.send(p, destination, m)
	old := in.next()
	s.broker.Cut()
	finish(s, "context of the message", old.ended)
	again := in.next()
	s.same(again.Message, m)
	old.ack()
	in.quiet()
	// Had the late one reached the broker, this failure would be the last that
	// is heard of the message.
	again.fail(errTry)
	h := in.next()
	s.same(h.Message, m)
	h.ack()
	in.quiet()
	s.eventually("the transport is ready", func() bool { return p.Ready() == nil })
}

func removedSource(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 2)
	gone := s.message()
	s.send(p, destination, gone)
	old := in.next()
	s.broker.Remove(destination, source)
	finish(s, "context of the message", old.ended)
	s.eventually("the consumer is not ready", func() bool { return in.consumer.Ready() != nil })
	if err := p.Ready(); err == nil {
		s.Error("the transport is ready with a consumer that is not")
	} else if s.typed(err); errors.Is(err, transport.ErrClosed) {
		s.Errorf("a source that is gone is reported as %v", err)
	}
	s.broker.Restore(destination, source)
	s.eventually("the transport is ready again", func() bool { return p.Ready() == nil })
	m := s.message()
	s.sendAgain(p, destination, m)
	h := in.next()
	s.same(h.Message, m)
	// What comes too late must not count for the message that came since.
	old.ack()
	h.fail(errTry)
	h = in.next()
	s.same(h.Message, m)
	h.ack()
	in.quiet()
}
