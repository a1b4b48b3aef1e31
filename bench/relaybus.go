package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
)

const (
	relaybusName = "relaybus"
	eventName    = "order.placed"
)

// ours is relaybus on one of its stores.
type ours struct {
	setting

	bus   *relaybus.Bus
	event relaybus.EventType[order]
	// order writes the caller's row in the transaction of the context.
	order func(ctx context.Context, ord order) error
	// join publishes in a transaction of the caller's own; nil stands for one that
	// the bus opens.
	join func(ctx context.Context, ord order, messages []relaybus.Message) error
	// tally counts, and release closes what the bus was opened on.
	tally   func(ctx context.Context) (tally, error)
	release func() error
	// handled and done are set before the bus starts.
	handled func(order)
	done    func()
}

// start makes the bus, and starts one that only publishes.
func (o *ours) start(ctx context.Context, s store.Store) error {
	if err := s.Setup(ctx); err != nil {
		return err
	}
	o.event = relaybus.Define[order](eventName)
	bus, err := relaybus.New(s, relaybus.Config{
		Source:      "bench",
		PublishOnly: o.publishOnly,
		Concurrency: o.workers,
		Logger:      silent(),
		Hooks:       []relaybus.Hook{succeeded{o}},
	})
	if err != nil {
		return err
	}
	for i := range o.handlers {
		h := o.event.Handle(fmt.Sprintf("handler-%d", i), func(_ context.Context, e *relaybus.Event[order]) error {
			o.handled(e.Payload)
			return nil
		})
		if err := bus.Subscribe(h); err != nil {
			return err
		}
	}
	o.bus = bus
	if o.publishOnly {
		return bus.Start(ctx)
	}
	return nil
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// succeeded tells when a completion is durable.
type succeeded struct{ o *ours }

func (s succeeded) OnSucceeded(relaybus.Attempt) { s.o.done() }

func (o *ours) publish(ctx context.Context, first int64, n int) error {
	messages := make([]relaybus.Message, n)
	for i := range messages {
		number := first + int64(i)
		if o.keyed {
			messages[i] = o.event.New(newOrder(number), relaybus.Key(orderKey(number)))
		} else {
			messages[i] = o.event.New(newOrder(number))
		}
	}
	if o.join != nil {
		return o.join(ctx, newOrder(first), messages)
	}
	return o.bus.Transaction(ctx, func(ctx context.Context) error {
		if err := o.order(ctx, newOrder(first)); err != nil {
			return err
		}
		return o.bus.Publish(ctx, messages...)
	})
}

func (o *ours) load(ctx context.Context, n int) error {
	return inBatches(n, func(first int64, n int) error { return o.publish(ctx, first, n) })
}

func (o *ours) work(ctx context.Context, handled func(order), done func()) (stop func() error, err error) {
	o.handled, o.done = handled, done
	if err := o.bus.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return o.bus.Stop(context.WithoutCancel(ctx)) }, nil
}

func (o *ours) count(ctx context.Context) (tally, error) { return o.tally(ctx) }

func (o *ours) close() error {
	var stopped error
	if o.publishOnly {
		stopped = o.bus.Stop(context.Background())
	}
	return errors.Join(stopped, o.release())
}

// addTo returns what adds events to a store in a transaction of its own.
func addTo(s store.Store) func(ctx context.Context, events []store.NewEvent) error {
	return func(ctx context.Context, events []store.NewEvent) error {
		return s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			_, err := s.Append(ctx, tx, events, time.Now())
			return err
		})
	}
}
