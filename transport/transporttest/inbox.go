package transporttest

import (
	"context"
	"errors"
	"time"

	"github.com/relaybus-go/relaybus/transport"
)

var (
	errTry    = errors.New("not now")
	errBad    = transport.NewError("check message", transport.ErrReject, "it is bad", nil)
	errOver   = errors.New("the case is over")
	errNoStop = errors.New("no stop yet")
)

// handed is a message that was handed over and waits for its result.
type handed struct {
	transport.Inbound

	ended <-chan struct{}
	reply chan<- error
}

func (h handed) ack()           { h.reply <- nil }
func (h handed) fail(err error) { h.reply <- err }

// inbox receives for a subscription; the case gives each message its result.
type inbox struct {
	suite    *suite
	consumer transport.Consumer
	messages chan handed
}

// subscribe begins to receive with up to inFlight messages. A message that
// failed is handed over again without a delay.
func (s *suite) subscribe(p peer, source string, inFlight int, options ...func(*transport.Subscription)) *inbox {
	s.Helper()
	in := &inbox{suite: s, messages: make(chan handed)}
	over := s.Context().Done()
	sub := transport.Subscription{
		ID: "reader", Source: source, InFlight: inFlight,
		Receive: func(ctx context.Context, message transport.Inbound) error {
			reply := make(chan error, 1)
			select {
			case in.messages <- handed{Inbound: message, ended: ctx.Done(), reply: reply}:
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-over:
				return errOver
			}
			// A case may give its result after the context has ended.
			select {
			case err := <-reply:
				return err
			case <-over:
				return errOver
			}
		},
		Backoff: func(ctx context.Context, _ int) error {
			select {
			case <-over:
				// A consumer that nobody stops must not go on at full speed.
				<-ctx.Done()
			default:
			}
			return ctx.Err()
		},
	}
	for _, option := range options {
		option(&sub)
	}
	c, err := p.Subscribe(s.wait(), sub)
	if err != nil {
		s.Fatalf("subscribe to %q: %v", source, err)
	}
	in.consumer = c
	return in
}

func deadLetter(destination string) func(*transport.Subscription) {
	return func(s *transport.Subscription) { s.DeadLetter = destination }
}

// next waits for the next message.
func (in *inbox) next() handed {
	in.suite.Helper()
	select {
	case h := <-in.messages:
		return h
	case <-in.suite.wait().Done():
		in.suite.Fatal("no message arrives")
		panic("unreachable")
	}
}

// quiet checks that nothing arrives.
func (in *inbox) quiet() {
	in.suite.Helper()
	select {
	case h := <-in.messages:
		h.ack()
		in.suite.Fatalf("message %s arrives once more", h.ID)
	case <-time.After(in.suite.backend.Quiet):
	}
}

// collect acknowledges messages until it has seen every id, and returns how
// often it saw each.
func (in *inbox) collect(ids map[string]bool) map[string]int {
	in.suite.Helper()
	seen := map[string]int{}
	missing := len(ids)
	for missing > 0 {
		h := in.next()
		if ids[h.ID] && seen[h.ID] == 0 {
			missing--
		}
		seen[h.ID]++
		h.ack()
	}
	return seen
}
