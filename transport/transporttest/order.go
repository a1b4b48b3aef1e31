package transporttest

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/relaybus-go/relaybus/transport"
)

func orderCases() []testCase {
	return []testCase{
		{"F49KeysKeepTheirOrder", nothing, func(s *suite) { keysKeepTheirOrder(s, nil) }},
		{"F49KeysKeepTheirOrderAcrossCuts", func(b Broker) bool { return b.Cut != nil }, func(s *suite) { keysKeepTheirOrder(s, s.broker.Cut) }},
	}
}

// journal records the first success of each message, by key.
type journal struct {
	mu      sync.Mutex
	order   map[string][]string
	done    map[string]bool
	running map[string]int
	// beside counts messages that ran beside another of their key.
	beside int
	offers int
}

func (j *journal) receive(ctx context.Context, in transport.Inbound) error {
	j.mu.Lock()
	j.offers++
	fail := j.offers%7 == 0
	j.running[in.Key]++
	if j.running[in.Key] > 1 {
		j.beside++
	}
	j.mu.Unlock()

	j.mu.Lock()
	defer j.mu.Unlock()
	j.running[in.Key]--
	if fail || ctx.Err() != nil {
		return errTry
	}
	if !j.done[in.ID] {
		j.done[in.ID] = true
		j.order[in.Key] = append(j.order[in.Key], in.ID)
	}
	return nil
}

func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.done)
}

// keysKeepTheirOrder sends messages of several keys, each key one after the
// other as the bus does, and lets every seventh Receive fail.
func keysKeepTheirOrder(s *suite, fault func()) {
	const keys, each = 10, 30
	destination, source := s.broker.Link()
	p := s.open()
	j := &journal{order: map[string][]string{}, done: map[string]bool{}, running: map[string]int{}}
	consumer := s.open()
	s.subscribe(consumer, source, 16, func(sub *transport.Subscription) { sub.Receive = j.receive })

	want := map[string][]string{}
	var results []<-chan error
	for k := range keys {
		key := "key " + strconv.Itoa(k)
		list := make([]transport.Message, each)
		for i := range list {
			list[i] = s.keyed(key)
			want[key] = append(want[key], list[i].ID)
		}
		ctx := s.wait()
		results = append(results, background(func() error {
			for _, m := range list {
				for err := p.Send(ctx, destination, m); err != nil; err = p.Send(ctx, destination, m) {
					if !transport.IsOutage(err) || !pause(ctx) {
						return err
					}
				}
			}
			return nil
		}))
	}
	if fault != nil {
		for n := range 4 {
			s.eventually("messages flow", func() bool { return j.count() >= n*keys*each/5 })
			fault()
		}
	}
	for _, result := range results {
		if err := finish(s, "send", result); err != nil {
			s.Fatalf("send: %v", err)
		}
	}
	s.eventually("every message was received", func() bool { return j.count() == keys*each })
	j.mu.Lock()
	defer j.mu.Unlock()
	if consumer.Features().NoKeyOrder {
		return
	}
	for key, ids := range want {
		if !slices.Equal(j.order[key], ids) {
			s.Errorf("%s received in the order %v, sent as %v", key, j.order[key], ids)
		}
	}
	if fault == nil && j.beside > 0 {
		s.Errorf("%d times two messages of a key were handed over at the same time", j.beside)
	}
}
