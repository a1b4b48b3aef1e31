package transporttest

import (
	"context"
	"strings"

	"github.com/relaybus-go/relaybus/transport"
)

func topologyCases() []testCase {
	return []testCase{
		{"F65DeclaredTopologyIsChecked", nothing, declaredTopology},
		{"F65SubscribeChecks", nothing, subscribeChecks},
	}
}

func declaredTopology(s *suite) {
	destination, source := s.broker.Link()
	if _, ok := s.broker.New().(transport.Declarer); !ok {
		s.Log("the transport is no Declarer; a destination that is missing shows at the first Send")
		return
	}
	missing := s.broker.Missing()
	declare := func(p peer, destination, source string) error {
		d, _ := p.Transport.(transport.Declarer)
		return d.Declare(transport.Topology{
			Destinations:  []string{destination},
			Subscriptions: []transport.Subscription{{ID: "reader", Source: source}},
		})
	}
	for _, wrong := range [][2]string{{missing, source}, {destination, missing}} {
		leaks := s.watch(func() {
			p := s.fresh()
			if err := declare(p, wrong[0], wrong[1]); err != nil {
				s.Fatalf("declare: %v", err)
			}
			err := p.Connect(s.wait())
			s.class(err, transport.ErrConfiguration)
			if !strings.Contains(err.Error(), missing) {
				s.Errorf("%q does not name %q", err, missing)
			}
			s.class(p.Ready(), transport.ErrNotConnected)
		})
		leaks.none()
	}
	s.class(declare(s.fresh(), "", source), transport.ErrConfiguration)
	s.class(declare(s.fresh(), destination, ""), transport.ErrConfiguration)

	p := s.fresh()
	if err := declare(p, destination, source); err != nil {
		s.Fatalf("declare: %v", err)
	}
	if err := p.Connect(s.wait()); err != nil {
		s.Fatalf("connect: %v", err)
	}
	s.send(p, destination, s.message())
	s.subscribe(p, source, 1).next().ack()
	if err := p.Close(s.wait()); err != nil {
		s.Errorf("close: %v", err)
	}
}

func subscribeChecks(s *suite) {
	_, source := s.broker.Link()
	p := s.open()
	wrong := map[string]func(*transport.Subscription){
		"no ID":      func(sub *transport.Subscription) { sub.ID = "" },
		"no source":  func(sub *transport.Subscription) { sub.Source = "" },
		"no receive": func(sub *transport.Subscription) { sub.Receive = nil },
		"no backoff": func(sub *transport.Subscription) { sub.Backoff = nil },
		"in flight":  func(sub *transport.Subscription) { sub.InFlight = -1 },
		"missing":    func(sub *transport.Subscription) { sub.Source = s.broker.Missing() },
	}
	if p.Features().NoDeadLetter {
		wrong["dead letter"] = func(sub *transport.Subscription) { sub.DeadLetter = "dead" }
	} else {
		wrong["missing dead letter"] = func(sub *transport.Subscription) { sub.DeadLetter = s.broker.Missing() }
	}
	for name, spoil := range wrong {
		sub := subscription(source)
		spoil(&sub)
		c, err := p.Subscribe(s.wait(), sub)
		if c != nil {
			s.Errorf("%s: a consumer comes with the error %v", name, err)
		}
		s.class(err, transport.ErrConfiguration)
	}
	if err := p.Ready(); err != nil {
		s.Errorf("not ready after refused subscriptions: %v", err)
	}
	destination, source := s.broker.Link()
	in := s.subscribe(p, source, 0, func(sub *transport.Subscription) {
		sub.Backoff = func(context.Context, int) error { return errNoStop }
	})
	m := s.message()
	s.send(p, destination, m)
	in.next().fail(errTry)
	// A Backoff that fails by itself does not lose the message.
	h := in.next()
	s.same(h.Message, m)
	h.ack()
}
