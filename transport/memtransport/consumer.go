package memtransport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/relaybus-go/relaybus/transport"
)

// consumer is a running subscription: as many workers as messages may be in
// flight, each with one message at a time.
type consumer struct {
	transport *Transport
	sub       transport.Subscription
	// stopIntake ends the taking of messages and the waiting of Backoff;
	// endWork frees what the contexts of the messages hang on.
	stopIntake context.CancelFunc
	endWork    context.CancelCauseFunc
	// done is closed by the last worker.
	done chan struct{}

	// The broker's lock guards what follows.
	stopping bool
	workers  int
	busy     int
}

// Subscribe begins to receive from a queue or topic. Both the source and the
// dead letter destination must exist.
func (t *Transport) Subscribe(ctx context.Context, s transport.Subscription) (transport.Consumer, error) {
	const op = "subscribe"
	if err := s.Validate(); err != nil {
		return nil, err
	}
	// The workers outlive the call, so they keep its values only.
	work, endWork := context.WithCancelCause(context.WithoutCancel(ctx))
	intake, stopIntake := context.WithCancel(work)
	c := &consumer{
		transport: t, sub: s,
		stopIntake: stopIntake, endWork: endWork,
		done: make(chan struct{}), workers: max(1, s.InFlight),
	}
	err := t.await(ctx, op, func() (bool, error) {
		b := t.broker
		switch {
		case !t.connected:
			return true, transport.NewError(op, transport.ErrNotConnected, "", nil)
		case b.faults.down:
			return true, transport.NewError(op, transport.ErrUnavailable, "", nil)
		case b.faults.frozen:
			return false, nil
		}
		for _, name := range []string{s.Source, s.DeadLetter} {
			if name != "" && b.places[name] == nil {
				return true, transport.NewError(op, transport.ErrConfiguration, strconv.Quote(name)+" does not exist", nil)
			}
		}
		b.places[s.Source].group(s.ID)
		t.consumers = append(t.consumers, c)
		b.broadcast()
		return true, nil
	})
	if err != nil {
		endWork(err)
		stopIntake()
		return nil, err
	}
	for range c.workers {
		go c.run(intake, work)
	}
	return c, nil
}

// Stop ends the consumer.
func (c *consumer) Stop(ctx context.Context) error {
	b := c.transport.broker
	b.mu.Lock()
	c.stopping = true
	b.broadcast()
	b.mu.Unlock()
	c.stopIntake()
	for {
		b.mu.Lock()
		busy, changed := c.busy, b.changed
		b.mu.Unlock()
		if busy == 0 {
			// Workers without a message leave at once, whatever the context.
			<-c.done
			c.endWork(nil)
			c.transport.forget(c)
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c.abandon(ctx)
		}
	}
}

// abandon ends the calls of Receive and takes their messages away.
func (c *consumer) abandon(ctx context.Context) error {
	b := c.transport.broker
	closed := transport.NewError("receive", transport.ErrClosed, "", nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(closed, func(cl *claim) bool { return cl.consumer == c })
	b.broadcast()
	detail := fmt.Sprintf("subscription %q still handles %d messages", c.sub.ID, c.busy)
	return transport.NewError("stop consumer", transport.ErrTimeout, detail, context.Cause(ctx))
}

// Ready is nil while the source is there and the broker answers.
func (c *consumer) Ready() error {
	c.transport.broker.mu.Lock()
	defer c.transport.broker.mu.Unlock()
	return c.ready()
}

func (c *consumer) ready() error {
	if c.stopping {
		return transport.NewError("check consumer", transport.ErrClosed, "subscription "+strconv.Quote(c.sub.ID), nil)
	}
	if err := c.transport.ready(); err != nil {
		return err
	}
	if c.transport.broker.places[c.sub.Source] == nil {
		detail := fmt.Sprintf("subscription %q: source %q is gone", c.sub.ID, c.sub.Source)
		return transport.NewError("check consumer", transport.ErrUnavailable, detail, nil)
	}
	return nil
}

func (t *Transport) forget(c *consumer) {
	t.broker.mu.Lock()
	defer t.broker.mu.Unlock()
	t.consumers = slices.DeleteFunc(t.consumers, func(other *consumer) bool { return other == c })
}

// run is one worker.
func (c *consumer) run(intake, work context.Context) {
	b := c.transport.broker
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		c.workers--
		if c.workers == 0 {
			close(c.done)
		}
	}()
	for {
		ctx, cancel := context.WithCancelCause(work)
		cl := c.take(intake, cancel)
		if cl == nil {
			cancel(nil)
			return
		}
		c.handle(intake, ctx, cl)
		cancel(nil)
		b.mu.Lock()
		c.busy--
		b.broadcast()
		b.mu.Unlock()
	}
}

// take waits for a message, or returns nil when the consumer stops.
func (c *consumer) take(intake context.Context, end context.CancelCauseFunc) *claim {
	b := c.transport.broker
	for {
		b.mu.Lock()
		if c.stopping {
			b.mu.Unlock()
			return nil
		}
		if p := b.places[c.sub.Source]; p != nil && !b.faults.down && !b.faults.frozen {
			if e := p.group(c.sub.ID).next(); e != nil {
				e.claim = &claim{entry: e, consumer: c, end: end}
				c.busy++
				cl := e.claim
				b.mu.Unlock()
				return cl
			}
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-intake.Done():
		}
	}
}

// handle hands the message over until it is settled, lost or given back.
func (c *consumer) handle(intake, ctx context.Context, cl *claim) {
	for failures := 1; ; failures++ {
		in, held := c.offer(cl)
		if !held {
			return
		}
		err := c.sub.Receive(ctx, in)
		if c.settle(cl, in.Redeliveries, err) {
			return
		}
		if !c.backoff(intake, ctx, failures) {
			c.giveBack(cl)
			return
		}
	}
}

func (c *consumer) offer(cl *claim) (in transport.Inbound, held bool) {
	c.transport.broker.mu.Lock()
	defer c.transport.broker.mu.Unlock()
	if cl.lost() {
		return transport.Inbound{}, false
	}
	in = cloneInbound(cl.entry.in)
	in.Redeliveries = cl.entry.offers
	cl.entry.offers++
	return in, true
}

// settle does what the result of Receive says, and reports whether the
// consumer is done with the message.
func (c *consumer) settle(cl *claim, redeliveries int, result error) bool {
	b := c.transport.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	if cl.lost() {
		return true
	}
	in := cl.entry.in
	in.Redeliveries = redeliveries
	rejected := errors.Is(result, transport.ErrReject)
	switch {
	case result != nil && !rejected:
		return false
	case rejected && !c.reject(in, result.Error()):
		return false
	case !rejected && b.faults.loseAcks > 0:
		b.faults.loseAcks--
		cl.entry.release(transport.NewError("acknowledge", transport.ErrUnavailable, "the connection broke", nil))
	default:
		cl.entry.claim = nil
		b.places[c.sub.Source].group(c.sub.ID).remove(cl.entry)
	}
	b.broadcast()
	return true
}

// reject puts a message where rejected ones go. It reports false when its dead
// letter destination is gone, as it would be lost then. The lock is held.
func (c *consumer) reject(in transport.Inbound, reason string) bool {
	b := c.transport.broker
	if c.sub.DeadLetter != "" {
		target := b.places[c.sub.DeadLetter]
		if target == nil {
			return false
		}
		target.add(in)
	}
	p := b.places[c.sub.Source]
	p.rejected = append(p.rejected, Rejected{Subscription: c.sub.ID, Reason: reason, Inbound: in})
	return true
}

// backoff waits, and reports whether the message is to be handed over again.
func (c *consumer) backoff(intake, ctx context.Context, failures int) bool {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(intake, cancel)()
	// Whatever it returns, only the end of its context is a reason to give up.
	_ = c.sub.Backoff(wait, failures)
	return wait.Err() == nil
}

func (c *consumer) giveBack(cl *claim) {
	c.transport.broker.mu.Lock()
	defer c.transport.broker.mu.Unlock()
	if !cl.lost() {
		cl.entry.release(transport.NewError("receive", transport.ErrClosed, "", nil))
		c.transport.broker.broadcast()
	}
}
