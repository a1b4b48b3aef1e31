package relaybus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/transport"
)

// Subscription takes messages from a broker. Each is appended to the store in a
// transaction of its own, with the handlers that this bus and the catalogue
// have for its type, and acknowledged after the commit. A message that comes
// again is recognised by its event id.
type Subscription struct {
	// ID names the subscription at the broker; processes with the same ID share
	// its messages.
	ID string
	// Transport names one of Config.Transports.
	Transport string
	// Source is where the messages come from, in the broker's terms.
	Source string
	// DeadLetter is where messages go that are no valid events, in the broker's
	// terms. Without it they are left to the broker's own rules.
	DeadLetter string
	// InFlight is how many messages are taken at once. Default 1.
	InFlight int
}

// links are the open connections of a bus.
type links struct {
	mu         sync.Mutex
	transports []transport.Transport
	consumers  []consumer
}

type consumer struct {
	id string
	transport.Consumer
}

func (l *links) ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, t := range l.transports {
		if err := t.Ready(); err != nil {
			errs = append(errs, fmt.Errorf("transport %s: %w", t.Name(), err))
		}
	}
	for _, c := range l.consumers {
		if err := c.Ready(); err != nil {
			errs = append(errs, fmt.Errorf("subscription %s: %w", c.id, err))
		}
	}
	return errors.Join(errs...)
}

// checkSubscriptions says what is wrong with the configuration's.
func (b *Bus) checkSubscriptions() error {
	var errs []error
	seen := make(map[string]bool)
	for i, s := range b.cfg.Subscriptions {
		if seen[s.Transport+"\x00"+s.ID] {
			errs = append(errs, configError("Subscriptions[%d]: the ID %q is used twice", i, s.ID))
		}
		seen[s.Transport+"\x00"+s.ID] = true
		if t := b.transport(s.Transport); t == nil {
			errs = append(errs, configError("Subscriptions[%d]: Transport %q is not in Transports", i, s.Transport))
		} else if _, ok := t.(transport.Receiver); !ok {
			errs = append(errs, configError("Subscriptions[%d]: Transport %q can't receive", i, s.Transport))
		}
		if err := b.transportSubscription(s).Validate(); err != nil {
			errs = append(errs, configError("Subscriptions[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (b *Bus) transport(name string) transport.Transport {
	for _, t := range b.cfg.Transports {
		if t != nil && t.Name() == name {
			return t
		}
	}
	return nil
}

func (b *Bus) transportSubscription(s Subscription) transport.Subscription {
	return transport.Subscription{
		ID: s.ID, Source: s.Source, DeadLetter: s.DeadLetter, InFlight: s.InFlight,
		Receive: b.receiveOne,
		Backoff: func(ctx context.Context, failures int) error {
			policy := RetryPolicy{Base: 100 * time.Millisecond, Cap: 30 * time.Second}.withDefaults()
			if !b.sleep(ctx, policy.delay(failures, nil, b.cfg.Random)) {
				return context.Cause(ctx)
			}
			return nil
		},
	}
}

// connect announces what is used and connects every transport.
func (b *Bus) connect(ctx context.Context) error {
	for _, t := range b.cfg.Transports {
		if d, ok := t.(transport.Declarer); ok {
			if err := d.Declare(b.topology(t.Name())); err != nil {
				return fmt.Errorf("declare topology of transport %s: %w", t.Name(), err)
			}
		}
		if err := t.Connect(ctx); err != nil {
			return fmt.Errorf("connect transport %s: %w", t.Name(), err)
		}
		b.life.links.mu.Lock()
		b.life.links.transports = append(b.life.links.transports, t)
		b.life.links.mu.Unlock()
	}
	return nil
}

func (b *Bus) topology(name string) transport.Topology {
	var t transport.Topology
	seen := make(map[string]bool)
	for _, r := range b.cfg.Routes {
		if r.Transport == name && !seen[r.Destination] {
			seen[r.Destination] = true
			t.Destinations = append(t.Destinations, r.Destination)
		}
	}
	for _, s := range b.cfg.Subscriptions {
		if s.Transport == name {
			t.Subscriptions = append(t.Subscriptions, b.transportSubscription(s))
		}
	}
	return t
}

// receive starts the subscriptions, last of all.
func (b *Bus) receive(ctx context.Context) error {
	for _, s := range b.cfg.Subscriptions {
		receiver, ok := b.transport(s.Transport).(transport.Receiver)
		if !ok {
			return configError("subscription %s: its transport can't receive", s.ID)
		}
		c, err := receiver.Subscribe(ctx, b.transportSubscription(s))
		if err != nil {
			return fmt.Errorf("subscribe %s: %w", s.ID, err)
		}
		b.life.links.mu.Lock()
		b.life.links.consumers = append(b.life.links.consumers, consumer{id: s.ID, Consumer: c})
		b.life.links.mu.Unlock()
	}
	return nil
}

// receiveOne appends one message to the store.
func (b *Bus) receiveOne(ctx context.Context, in transport.Inbound) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("receive: panicked with a %T", value)
		}
	}()
	if in.Malformed != nil {
		return fmt.Errorf("%w: %w", transport.ErrReject, in.Malformed)
	}
	m := Raw(in.Type, in.Payload, ID(in.ID))
	for _, o := range []struct {
		value  string
		option PublishOption
	}{
		{in.Key, Key(in.Key)},
		{in.CorrelationID, CorrelationID(in.CorrelationID)},
		{in.CausationID, CausationID(in.CausationID)},
	} {
		if o.value != "" {
			o.option.applyMessage(&m)
		}
	}
	if in.Headers != nil {
		RawHeaders(in.Headers).applyMessage(&m)
	}
	events, infos, err := b.prepareEvents(ctx, []Message{m})
	if errors.Is(err, ErrValidation) {
		return fmt.Errorf("%w: %w", transport.ErrReject, err)
	}
	if err != nil {
		return err
	}
	e := &events[0].Event
	if in.Source != "" && checkText(in.Source, maxName) == "" {
		e.Source = in.Source
	}
	if !in.CreatedAt.IsZero() {
		e.CreatedAt = stamp(in.CreatedAt)
	}
	return b.transact(ctx, false, b.cfg.TransactionTimeout, func(ctx context.Context, tx store.Tx) error {
		return b.append(ctx, tx, events, infos)
	})
}

// stopReceiving stops the consumers that were started.
func (b *Bus) stopReceiving(ctx context.Context) error {
	b.life.links.mu.Lock()
	consumers := b.life.links.consumers
	b.life.links.consumers = nil
	b.life.links.mu.Unlock()
	var errs []error
	for _, c := range consumers {
		if err := c.Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop subscription %s: %w", c.id, err))
		}
	}
	return errors.Join(errs...)
}

// disconnect closes the transports that were connected, the last one first.
func (b *Bus) disconnect(ctx context.Context) error {
	b.life.links.mu.Lock()
	transports := b.life.links.transports
	b.life.links.transports = nil
	b.life.links.mu.Unlock()
	var errs []error
	for _, t := range slices.Backward(transports) {
		if err := t.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close transport %s: %w", t.Name(), err))
		}
	}
	return errors.Join(errs...)
}
