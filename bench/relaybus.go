package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/sqlite"
)

const eventName = "order.placed"

// ours is relaybus on its SQLite store.
type ours struct {
	setting

	store  *sqlite.Store
	orders *orders
	bus    *relaybus.Bus
	event  relaybus.EventType[order]
	// handled and done are set before the bus starts.
	handled func(order)
	done    func()
}

func openRelaybus(ctx context.Context, e setting) (queue, error) {
	s, err := sqlite.Open(e.path)
	if err != nil {
		return nil, err
	}
	o := &ours{setting: e, store: s, event: relaybus.Define[order](eventName)}
	if o.bus, err = o.newBus(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.Setup(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if o.orders, err = newOrders(ctx, s.DB()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if e.publishOnly {
		if err := o.bus.Start(ctx); err != nil {
			return nil, errors.Join(err, o.orders.close(), s.Close())
		}
	}
	return o, nil
}

func (o *ours) newBus() (*relaybus.Bus, error) {
	cfg := relaybus.Config{
		Source:      "bench",
		PublishOnly: o.publishOnly,
		Concurrency: o.workers,
		Logger:      slog.New(slog.NewTextHandler(io.Discard, nil)),
		Hooks:       []relaybus.Hook{succeeded{o}},
	}
	bus, err := relaybus.New(o.store, cfg)
	if err != nil {
		return nil, err
	}
	for i := range o.handlers {
		h := o.event.Handle(fmt.Sprintf("handler-%d", i), func(_ context.Context, e *relaybus.Event[order]) error {
			o.handled(e.Payload)
			return nil
		})
		if err := bus.Subscribe(h); err != nil {
			return nil, err
		}
	}
	return bus, nil
}

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
	return o.bus.Transaction(ctx, func(ctx context.Context) error {
		if err := o.orders.add(ctx, sqlite.Tx(ctx), newOrder(first)); err != nil {
			return err
		}
		return o.bus.Publish(ctx, messages...)
	})
}

const loadBatch = 1000

func (o *ours) load(ctx context.Context, n int) error {
	return inBatches(n, func(first int64, n int) error { return o.publish(ctx, first, n) })
}

// inBatches calls f for pieces of n.
func inBatches(n int, f func(first int64, n int) error) error {
	for first := 0; first < n; first += loadBatch {
		if err := f(int64(first), min(loadBatch, n-first)); err != nil {
			return err
		}
	}
	return nil
}

func (o *ours) work(ctx context.Context, handled func(order), done func()) (stop func() error, err error) {
	o.handled, o.done = handled, done
	if err := o.bus.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return o.bus.Stop(context.WithoutCancel(ctx)) }, nil
}

func (o *ours) count(ctx context.Context) (tally, error) {
	return countTables(ctx, o.store.Reader(), "SELECT count(*) FROM relaybus_deliveries")
}

func (o *ours) close() error {
	var stopped error
	if o.publishOnly {
		stopped = o.bus.Stop(context.Background())
	}
	return errors.Join(stopped, o.orders.close(), o.store.Close())
}
