package transporttest

import (
	"context"
	"strconv"
	"sync"

	"github.com/relaybus-go/relaybus/transport"
)

func receiveCases() []testCase {
	return []testCase{
		{"X1FailedMessageIsHandedOverAgain", nothing, failedIsHandedOverAgain},
		{"F24AcknowledgedAfterReceiveOnly", nothing, acknowledgedAfterReceiveOnly},
		{"F14RejectedIsNotHandedOverAgain", nothing, rejectedIsNotHandedOverAgain},
		{"F14GarbageIsHandedOverAndFlowsOn", func(b Broker) bool { return b.Put != nil }, garbageFlowsOn},
		{"F23InFlightIsBounded", nothing, inFlightIsBounded},
		{"F24ProcessesShareASubscription", nothing, processesShare},
	}
}

func failedIsHandedOverAgain(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	waits := make(chan int, 10)
	in := s.subscribe(p, source, 1, func(sub *transport.Subscription) {
		sub.Backoff = func(ctx context.Context, failures int) error {
			waits <- failures
			return ctx.Err()
		}
	})
	first, second := s.message(), s.message()
	s.send(p, destination, first)
	s.send(p, destination, second)
	for failures := 1; failures <= 3; failures++ {
		h := in.next()
		s.same(h.Message, first)
		h.fail(errTry)
		if n := finish(s, "backoff", waits); n != failures {
			s.Errorf("backoff for failure %d, want %d", n, failures)
		}
	}
	for _, want := range []transport.Message{first, second} {
		h := in.next()
		s.same(h.Message, want)
		h.ack()
	}
	// Failures are counted for each message.
	third := s.message()
	s.send(p, destination, third)
	in.next().fail(errTry)
	if n := finish(s, "backoff", waits); n != 1 {
		s.Errorf("first failure of another message counts as %d", n)
	}
	in.next().ack()
	in.quiet()
}

func acknowledgedAfterReceiveOnly(s *suite) {
	destination, source := s.broker.Link()
	dying := s.fresh()
	if err := dying.Connect(s.wait()); err != nil {
		s.Fatal(err)
	}
	in := s.subscribe(dying, source, 1)
	m := s.message()
	s.send(dying, destination, m)
	h := in.next()
	// It goes away in the middle of the message.
	s.class(dying.Close(s.ended()), transport.ErrTimeout)
	finish(s, "context of the message", h.ended)

	second := s.open()
	again := s.subscribe(second, source, 1)
	h2 := again.next()
	s.same(h2.Message, m)
	// The late result counts for nothing: not as an acknowledgement of what
	// the other one has now, and not as a failure.
	h.ack()
	if err := dying.Close(s.wait()); err != nil {
		s.Errorf("close after the message has ended: %v", err)
	}
	h2.fail(errTry)
	h3 := again.next()
	s.same(h3.Message, m)
	h3.ack()
	if err := again.consumer.Stop(s.wait()); err != nil {
		s.Fatal(err)
	}
	s.subscribe(s.open(), source, 1).quiet()
}

func rejectedIsNotHandedOverAgain(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	var options []func(*transport.Subscription)
	var dead *inbox
	if !p.Features().NoDeadLetter {
		deadDestination, deadSource := s.broker.Link()
		options = append(options, deadLetter(deadDestination))
		dead = s.subscribe(p, deadSource, 1)
	}
	in := s.subscribe(p, source, 1, options...)
	bad, good := s.keyed("k"), s.keyed("k")
	s.send(p, destination, bad)
	s.send(p, destination, good)
	h := in.next()
	s.same(h.Message, bad)
	h.fail(errBad)
	h = in.next()
	s.same(h.Message, good)
	h.ack()
	if dead != nil {
		h := dead.next()
		s.same(h.Message, bad)
		h.ack()
		dead.quiet()
	}
	in.quiet()
}

func garbageFlowsOn(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 4)
	garbage := [][]byte{nil, []byte(`null`), []byte(`{`), {0xff, 0xfe, 0x00}, []byte(`{"id":1}`)}
	want := map[string]int{}
	for i := range 100 {
		body := garbage[i%len(garbage)]
		want[string(body)]++
		s.broker.Put(destination, body)
	}
	ids := map[string]bool{}
	for range 5 {
		m := s.message()
		ids[m.ID] = true
		s.send(p, destination, m)
	}
	for range 105 {
		h := in.next()
		if ids[h.ID] {
			if h.Malformed != nil {
				s.Errorf("message %s is malformed: %v", h.ID, h.Malformed)
			}
			delete(ids, h.ID)
			h.ack()
			continue
		}
		if h.Malformed == nil {
			s.Errorf("the body %q is no event, and is not malformed", h.Raw)
		}
		want[string(h.Raw)]--
		h.fail(errBad)
	}
	for body, n := range want {
		if n != 0 {
			s.Errorf("body %q: %d too few", body, n)
		}
	}
	in.quiet()
	if err := p.Ready(); err != nil {
		s.Errorf("not ready after garbage: %v", err)
	}
}

func inFlightIsBounded(s *suite) {
	const inFlight = 3
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, inFlight)
	ids := map[string]bool{}
	for range 3 * inFlight {
		m := s.message()
		ids[m.ID] = true
		s.send(p, destination, m)
	}
	var held []handed
	for range inFlight {
		held = append(held, in.next())
	}
	in.quiet()
	for _, h := range held {
		delete(ids, h.ID)
		h.ack()
	}
	in.collect(ids)
	in.quiet()
}

func processesShare(s *suite) {
	const messages, inFlight = 200, 4
	destination, source := s.broker.Link()
	sender := s.open()
	ids := map[string]bool{}
	var mu sync.Mutex
	seen := map[string]int{}
	for range 3 {
		s.subscribe(s.open(), source, inFlight, func(sub *transport.Subscription) {
			sub.Receive = func(_ context.Context, in transport.Inbound) error {
				mu.Lock()
				defer mu.Unlock()
				seen[in.ID]++
				return nil
			}
		})
	}
	for i := range messages {
		m := s.keyed(strconv.Itoa(i % 50))
		ids[m.ID] = true
		s.send(sender, destination, m)
	}
	s.eventually("every message was received", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == len(ids)
	})
	mu.Lock()
	defer mu.Unlock()
	for id, n := range seen {
		// A consumer that joins may move what others had in flight.
		if n > 2 || !ids[id] {
			s.Errorf("message %q received %d times", id, n)
		}
	}
}
