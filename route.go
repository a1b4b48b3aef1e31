package relaybus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus/transport"
)

// Route sends events to a broker. It is a durable handler: each event has a
// delivery for it, which is retried, dead-lettered and kept in order per key
// like any other, and completed once the broker has confirmed.
type Route struct {
	// ID is the route's handler id. Default "route." and Transport, "." and
	// Destination.
	ID string
	// Types are the event types and patterns that it sends.
	Types []string
	// Transport names one of Config.Transports.
	Transport string
	// Destination is where to, in the broker's terms.
	Destination string
	// Timeout bounds one send. Default 30 s.
	Timeout time.Duration
	// Options are further options of its handler: Retry, Concurrency, HoldKey …
	Options []HandlerOption
}

const defaultSendTimeout = 30 * time.Second

// routeHandlers makes handlers of the routes.
func (b *Bus) routeHandlers() ([]Handler, error) {
	var errs []error
	names := make(map[string]transport.Transport)
	for i, t := range b.cfg.Transports {
		switch {
		case t == nil || isNilPointer(t):
			errs = append(errs, configError("Transports[%d] is nil", i))
		case names[t.Name()] != nil:
			errs = append(errs, configError("Transports[%d]: the name %q is used twice", i, t.Name()))
		default:
			names[t.Name()] = t
		}
	}
	handlers := make([]Handler, 0, len(b.cfg.Routes))
	for i, r := range b.cfg.Routes {
		fail := func(format string, args ...any) {
			errs = append(errs, configError("Routes[%d]: %w", i, fmt.Errorf(format, args...)))
		}
		sender, ok := names[r.Transport].(transport.Sender)
		if names[r.Transport] == nil {
			fail("Transport %q is not in Transports", r.Transport)
		} else if !ok {
			fail("Transport %q can't send", r.Transport)
		}
		if r.Destination == "" {
			fail("Destination is empty")
		}
		if r.Timeout < 0 {
			fail("Timeout %v is negative", r.Timeout)
		}
		if r.ID == "" {
			r.ID = "route." + r.Transport + "." + r.Destination
		}
		options := append([]HandlerOption{Timeout(durationOr(r.Timeout, defaultSendTimeout))}, r.Options...)
		h := newHandler(r.ID, r.Types, nil, func(ctx context.Context, e *RawEvent) error {
			return steerSend(sender.Send(ctx, r.Destination, outbound(e)))
		}, options)
		h.origin = fmt.Sprintf("Config.Routes[%d]", i)
		if h.transactional {
			fail("a route can't be transactional")
		}
		handlers = append(handlers, h)
	}
	return handlers, errors.Join(errs...)
}

func durationOr(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

func outbound(e *RawEvent) transport.Message {
	return transport.Message{
		ID: e.ID, Type: e.Type, Source: e.Source, Key: e.Key,
		CorrelationID: e.CorrelationID, CausationID: e.CausationID, CreatedAt: e.CreatedAt,
		Payload: e.Payload, Headers: e.Headers.JSON(),
	}
}
