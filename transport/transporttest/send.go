package transporttest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/transport"
)

func sendCases() []testCase {
	return []testCase{
		{"X1SendIsReceivedUnchanged", nothing, sendIsReceivedUnchanged},
		{"X1PayloadsKeepEveryByte", nothing, payloadsKeepEveryByte},
		{"F03UnroutableIsNoSuccess", nothing, unroutableIsNoSuccess},
		{"F03RemovedDestination", func(b Broker) bool { return b.Remove != nil && b.Restore != nil }, removedDestination},
		{"F13TooLargeIsPermanent", func(b Broker) bool { return b.TooLarge > 0 }, tooLargeIsPermanent},
		{"F13RefusedIsPermanent", func(b Broker) bool { return b.Refuse != nil }, refusedIsPermanent},
		{"F65NackedIsRetried", func(b Broker) bool { return b.Nack != nil && b.Accept != nil }, nackedIsRetried},
		{"F49LostConfirmation", func(b Broker) bool { return b.LoseConfirm != nil }, lostConfirmation},
		{"F41ConcurrentSends", nothing, concurrentSends},
	}
}

func sendIsReceivedUnchanged(s *suite) {
	destination, source := s.broker.Link()
	in := s.subscribe(s.open(), source, 1)
	p := s.open()

	full := s.keyed("order 7/ü")
	full.CorrelationID = "c-1"
	full.CausationID = "c-0"
	full.Headers = []byte(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tenant":"blue ü","x":"1"}`)
	for _, want := range []transport.Message{full, s.message()} {
		s.send(p, destination, want)
		h := in.next()
		s.same(h.Message, want)
		if h.Malformed != nil {
			s.Errorf("message %s is malformed: %v", h.ID, h.Malformed)
		}
		if h.Position == "" {
			s.Errorf("message %s has no position", h.ID)
		}
		h.ack()
	}
	in.quiet()
}

// same compares all of a message, headers by value.
func (s *suite) same(got, want transport.Message) {
	s.Helper()
	if !bytes.Equal(got.Payload, want.Payload) {
		s.Errorf("message %s: payload %q, want %q", want.ID, got.Payload, want.Payload)
	}
	var gotHeaders, wantHeaders any
	for _, h := range []struct {
		text  []byte
		value *any
	}{{got.Headers, &gotHeaders}, {want.Headers, &wantHeaders}} {
		if h.text == nil {
			continue
		}
		if err := json.Unmarshal(h.text, h.value); err != nil {
			s.Errorf("message %s: headers %q: %v", want.ID, h.text, err)
		}
	}
	if !reflect.DeepEqual(gotHeaders, wantHeaders) {
		s.Errorf("message %s: headers %s, want %s", want.ID, got.Headers, want.Headers)
	}
	if !got.CreatedAt.Equal(want.CreatedAt) || got.CreatedAt.Location() != time.UTC {
		s.Errorf("message %s: created at %v, want %v", want.ID, got.CreatedAt, want.CreatedAt)
	}
	got.Payload, got.Headers, got.CreatedAt = want.Payload, want.Headers, want.CreatedAt
	if !reflect.DeepEqual(got, want) {
		s.Errorf("got %+v, want %+v", got, want)
	}
}

func payloadsKeepEveryByte(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 1)
	for _, payload := range []string{
		`null`, `""`, `{}`, `[]`, `0`, `false`,
		`{"b":1,"a":{"z":null,"y":[]}}`,
		`{"a":9007199254740993,"b":-9223372036854775808,"c":18446744073709551615,"d":0.1234567890123456789,"e":1.0,"f":1e2,"g":-0}`,
		`"nul \u0000, escaped \\u0000, quote \", é, 日本, 😀, \ud83d\ude00"`,
		"{ \"spaces\" :\n\t1 }",
	} {
		m := s.message()
		m.Payload = []byte(payload)
		s.send(p, destination, m)
		h := in.next()
		s.same(h.Message, m)
		h.ack()
	}
}

func unroutableIsNoSuccess(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 1)

	err := p.Send(s.wait(), s.broker.Missing(), s.message())
	s.class(err, transport.ErrUnroutable)
	if transport.IsPermanent(err) || transport.IsOutage(err) {
		s.Errorf("%v is permanent or an outage; it may be put right at the broker", err)
	}
	m := s.message()
	s.sendAgain(p, destination, m)
	if h := in.next(); h.ID != m.ID {
		s.Errorf("message %s arrives, want %s", h.ID, m.ID)
	} else {
		h.ack()
	}
}

func removedDestination(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	s.send(p, destination, s.message())
	s.broker.Remove(destination, source)
	m := s.message()
	s.class(p.Send(s.wait(), destination, m), transport.ErrUnroutable)
	s.broker.Restore(destination, source)
	s.sendAgain(p, destination, m)
	in := s.subscribe(s.open(), source, 1)
	if h := in.next(); h.ID != m.ID {
		s.Errorf("message %s arrives, want %s", h.ID, m.ID)
	} else {
		h.ack()
	}
}

func tooLargeIsPermanent(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 1)
	large := s.keyed("k")
	large.Payload = []byte(`"` + strings.Repeat("x", s.broker.TooLarge-2) + `"`)
	err := p.Send(s.wait(), destination, large)
	s.class(err, transport.ErrTooLarge)
	if !transport.IsPermanent(err) {
		s.Errorf("%v is not permanent", err)
	}
	for _, key := range []string{"k", "", "other"} {
		m := s.keyed(key)
		s.send(p, destination, m)
		h := in.next()
		if h.ID != m.ID {
			s.Errorf("message %s arrives, want %s", h.ID, m.ID)
		}
		h.ack()
	}
}

func refusedIsPermanent(s *suite) {
	refused, _ := s.broker.Link()
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 1)
	s.broker.Refuse(refused)
	err := p.Send(s.wait(), refused, s.message())
	s.class(err, transport.ErrRefused)
	if !transport.IsPermanent(err) {
		s.Errorf("%v is not permanent", err)
	}
	m := s.message()
	s.sendAgain(p, destination, m)
	if h := in.next(); h.ID != m.ID {
		s.Errorf("message %s arrives, want %s", h.ID, m.ID)
	} else {
		h.ack()
	}
}

func nackedIsRetried(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(p, source, 1)
	s.broker.Nack(destination)
	m := s.message()
	err := p.Send(s.wait(), destination, m)
	s.class(err, transport.ErrNacked)
	if transport.IsPermanent(err) {
		s.Errorf("%v is permanent", err)
	}
	s.broker.Accept(destination)
	s.sendAgain(p, destination, m)
	if h := in.next(); h.ID != m.ID {
		s.Errorf("message %s arrives, want %s", h.ID, m.ID)
	} else {
		h.ack()
	}
}

func lostConfirmation(s *suite) {
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(s.open(), source, 1)
	s.broker.LoseConfirm()
	m, after := s.keyed("k"), s.keyed("k")
	if err := p.Send(s.wait(), destination, m); err != nil {
		// A transport that finds out by itself may succeed.
		s.outage(err)
	}
	s.sendAgain(p, destination, m)
	s.sendAgain(p, destination, after)
	var got []string
	for len(got) == 0 || got[len(got)-1] != after.ID {
		h := in.next()
		got = append(got, h.ID)
		h.ack()
	}
	for _, id := range got[:len(got)-1] {
		if id != m.ID {
			s.Errorf("received %v, want %s once or more, then %s", got, m.ID, after.ID)
		}
	}
	if len(got) < 2 {
		s.Errorf("received %v: %s is lost", got, m.ID)
	}
}

func concurrentSends(s *suite) {
	const senders, each = 50, 10
	destination, source := s.broker.Link()
	p := s.open()
	in := s.subscribe(s.open(), source, 8)
	ids := map[string]bool{}
	var results []<-chan error
	for range senders {
		list := make([]transport.Message, each)
		for i := range list {
			list[i] = s.message()
			ids[list[i].ID] = true
		}
		ctx := s.wait()
		results = append(results, background(func() error {
			for _, m := range list {
				if err := p.Send(ctx, destination, m); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for id, n := range in.collect(ids) {
		if n != 1 {
			s.Errorf("message %s arrives %d times without a fault", id, n)
		}
	}
	for _, result := range results {
		if err := finish(s, "send", result); err != nil {
			s.Errorf("send: %v", err)
		}
	}
}
