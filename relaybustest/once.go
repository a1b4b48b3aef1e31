package relaybustest

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// HandleOnce calls a handler once with the event that the message becomes, and
// returns the error of the handler as it is: see [relaybus.IsPermanent],
// [relaybus.IsUnavailable] and [relaybus.RetryDelay] for what the bus would do
// about it. It is the first attempt; see [HandleAttempt] for others.
//
// There is no bus: no middleware, timeout or retry, a panic passes through, and
// the context is handed on as it is. A handler that writes in a transaction
// finds the one that the context carries, so call HandleOnce inside
// Bus.Transaction for it.
//
// The message is checked as by a publish. The id of the event is event-1 unless
// the message has one, and it was created at midnight UTC of January 1, 2000.
// The errors of a message or handler that the bus would refuse, and of an event
// type that the handler does not take, are those of the bus.
func HandleOnce(ctx context.Context, h relaybus.Handler, m relaybus.Message) error {
	return HandleAttempt(ctx, h, m, 1)
}

// HandleAttempt is [HandleOnce] with the number of the attempt, which counts
// from 1.
func HandleAttempt(ctx context.Context, h relaybus.Handler, m relaybus.Message, attempt int) error {
	e, err := publishAlone(context.WithoutCancel(ctx), h, m)
	if err != nil {
		return err
	}
	e.Handler, e.Attempt = h.ID(), attempt
	return h.Invoke(ctx, e)
}

// publishAlone makes an event of the message by publishing it on a bus of its
// own, with limits that let everything pass that some bus takes.
func publishAlone(ctx context.Context, h relaybus.Handler, m relaybus.Message) (*relaybus.RawEvent, error) {
	s := memstore.New(memstore.Config{})
	bus, err := relaybus.New(s, relaybus.Config{
		Clock:         NewClock(time.Time{}),
		GenerateID:    func() string { return "event-1" },
		Logger:        slog.New(slog.DiscardHandler),
		Owner:         "worker-1",
		Concurrency:   10_000,
		LeaseDuration: 24 * time.Hour,
		MaxPayload:    15 << 20,
		MaxHeaders:    1 << 20,
		NoCatalog:     true,
	})
	if err != nil {
		return nil, fmt.Errorf("handle once: %w", err)
	}
	if err := bus.Subscribe(h); err != nil {
		return nil, fmt.Errorf("handle once: %w", err)
	}
	err = bus.Transaction(ctx, func(ctx context.Context) error { return bus.Publish(ctx, m) })
	if err != nil {
		return nil, fmt.Errorf("handle once: %w", err)
	}
	return relaybus.EventOf(s.Events()[0]), nil
}
