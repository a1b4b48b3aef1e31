package memtransport

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/relaybus-go/relaybus/transport"
)

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Sender    = (*Transport)(nil)
	_ transport.Receiver  = (*Transport)(nil)
	_ transport.Declarer  = (*Transport)(nil)
)

// Transport is one connection to a [Broker]. It sends and receives, and checks
// what is declared; it declares nothing at the broker.
type Transport struct {
	broker *Broker
	name   string

	// The broker's lock guards what follows.
	topology  transport.Topology
	connected bool
	closed    bool
	consumers []*consumer
}

// Transport returns a new transport of that name, not connected. Each is a
// connection of its own; two of one broker may have the same name.
func (b *Broker) Transport(name string) *Transport {
	return &Transport{broker: b, name: name}
}

// Name returns the name that the transport was made with.
func (t *Transport) Name() string { return t.name }

// Features says that nothing survives the process.
func (*Transport) Features() transport.Features { return transport.Features{Volatile: true} }

// Declare records what Connect checks. Names must not be empty.
func (t *Transport) Declare(topology transport.Topology) error {
	if slices.Contains(topology.Destinations, "") {
		return transport.NewError("declare", transport.ErrConfiguration, "a destination is empty", nil)
	}
	for _, s := range topology.Subscriptions {
		if s.Source == "" {
			return transport.NewError("declare", transport.ErrConfiguration, "subscription "+strconv.Quote(s.ID)+" has no source", nil)
		}
	}
	t.broker.mu.Lock()
	defer t.broker.mu.Unlock()
	t.topology = transport.Topology{
		Destinations:  slices.Clone(topology.Destinations),
		Subscriptions: slices.Clone(topology.Subscriptions),
	}
	return nil
}

// Connect connects. Every declared destination, source and dead letter
// destination must exist.
func (t *Transport) Connect(ctx context.Context) error {
	const op = "connect"
	return t.await(ctx, op, func() (bool, error) {
		switch {
		case t.connected:
			return true, transport.NewError(op, transport.ErrConfiguration, "it is connected already", nil)
		case t.broker.faults.down:
			return true, transport.NewError(op, transport.ErrUnavailable, "", nil)
		case t.broker.faults.frozen:
			return false, nil
		}
		if missing := t.missing(); missing != nil {
			detail := strings.Join(missing, ", ") + " missing at the broker"
			return true, transport.NewError(op, transport.ErrConfiguration, detail, nil)
		}
		t.connected = true
		return true, nil
	})
}

func (t *Transport) missing() []string {
	var missing []string
	check := func(what, name string) {
		if t.broker.places[name] == nil {
			missing = append(missing, what+" "+strconv.Quote(name))
		}
	}
	for _, name := range t.topology.Destinations {
		check("destination", name)
	}
	for _, s := range t.topology.Subscriptions {
		check("source", s.Source)
		if s.DeadLetter != "" {
			check("dead letter destination", s.DeadLetter)
		}
	}
	return missing
}

// Close stops the consumers, ends the Sends in progress and disconnects.
func (t *Transport) Close(ctx context.Context) error {
	b := t.broker
	b.mu.Lock()
	t.closed = true
	consumers := slices.Clone(t.consumers)
	for _, c := range consumers {
		c.stopping = true
	}
	b.broadcast()
	b.mu.Unlock()

	var errs []error
	for _, c := range consumers {
		c.stopIntake()
	}
	for _, c := range consumers {
		errs = append(errs, c.Stop(ctx))
	}
	return errors.Join(errs...)
}

// Ready is nil when the broker answers and every consumer has its source.
func (t *Transport) Ready() error {
	t.broker.mu.Lock()
	defer t.broker.mu.Unlock()
	if err := t.ready(); err != nil {
		return err
	}
	var errs []error
	for _, c := range t.consumers {
		if !c.stopping {
			errs = append(errs, c.ready())
		}
	}
	return errors.Join(errs...)
}

// ready is about the connection alone. The lock is held.
func (t *Transport) ready() error {
	const op = "check readiness"
	switch {
	case t.closed:
		return transport.NewError(op, transport.ErrClosed, "", nil)
	case !t.connected:
		return transport.NewError(op, transport.ErrNotConnected, "", nil)
	case t.broker.faults.down:
		return transport.NewError(op, transport.ErrUnavailable, "the connection is broken", nil)
	case t.broker.faults.frozen:
		return transport.NewError(op, transport.ErrUnavailable, "the broker does not answer", nil)
	default:
		return nil
	}
}

// await calls try under the lock, at once and after each change, until it
// reports that it is done, the transport is closed, or the context ends.
func (t *Transport) await(ctx context.Context, op string, try func() (bool, error)) error {
	b := t.broker
	for {
		if ctx.Err() != nil {
			return transport.NewError(op, transport.ErrTimeout, "", context.Cause(ctx))
		}
		b.mu.Lock()
		if t.closed {
			b.mu.Unlock()
			return transport.NewError(op, transport.ErrClosed, "", nil)
		}
		done, err := try()
		changed := b.changed
		b.mu.Unlock()
		if done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
