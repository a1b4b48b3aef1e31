package relaybus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Event is an event as a handler gets it.
type Event[T any] struct {
	// ID is unique; deduplicate on it where a handler must not act twice.
	ID string
	// Type is the name of the event type.
	Type string
	// Source is the service that published it.
	Source string
	// Key is the ordering key, or "".
	Key string
	// Sequence orders the events of one key by their commits. It grows, and may
	// have gaps. It is 0 without a key.
	Sequence int64
	// Payload is what was published.
	Payload T
	// Headers are what was published with it.
	Headers Headers
	// CorrelationID and CausationID are "" when absent. An event published
	// inside a handler takes the correlation of the event at hand (or its id)
	// and has the event at hand as its cause.
	CorrelationID string
	CausationID   string
	// CreatedAt is when it was published, in UTC, to the millisecond.
	CreatedAt time.Time
	// Handler is the id of the handler, and Attempt counts its attempts at this
	// event from 1.
	Handler string
	Attempt int
}

// RawEvent is an event whose payload is still JSON.
type RawEvent = Event[json.RawMessage]

// rawEvent is the event of a claimed delivery.
func rawEvent(handler string, c *store.Claimed) *RawEvent {
	return &RawEvent{
		ID: c.Event.ID, Type: c.Event.Type, Source: c.Event.Source,
		Key: c.Event.Key, Sequence: c.Event.Sequence,
		Payload: c.Event.Payload, Headers: Headers{raw: c.Event.Headers},
		CorrelationID: c.Event.CorrelationID, CausationID: c.Event.CausationID,
		CreatedAt: c.Event.CreatedAt, Handler: handler, Attempt: c.Attempt,
	}
}

// EventOf returns an event of a store as handlers get it, for tests and tools
// that read a store by its own means. Handler and Attempt are not set.
func EventOf(e store.Event) *RawEvent { return rawEvent("", &store.Claimed{Event: e}) }

// Decode returns the event with its payload decoded. Numbers that are decoded
// into an interface become [json.Number], so no digit is lost. A payload that
// does not fit is a permanent error: trying again can't help.
func Decode[T any](e *RawEvent) (*Event[T], error) { return decodeWith[T](e, unmarshalNumbers) }

func decodeWith[T any](e *RawEvent, unmarshal func(payload []byte, to any) error) (*Event[T], error) {
	if raw, ok := any(e).(*Event[T]); ok {
		return raw, nil
	}
	typed := &Event[T]{
		ID: e.ID, Type: e.Type, Source: e.Source, Key: e.Key, Sequence: e.Sequence, Headers: e.Headers,
		CorrelationID: e.CorrelationID, CausationID: e.CausationID, CreatedAt: e.CreatedAt,
		Handler: e.Handler, Attempt: e.Attempt,
	}
	if err := unmarshal(e.Payload, &typed.Payload); err != nil {
		return nil, Permanent(fmt.Errorf("decode payload of %s: %w", e.Type, withoutValue(err)))
	}
	return typed, nil
}

// withoutValue removes the piece of the payload that errors of encoding/json
// quote.
func withoutValue(err error) error {
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %q at offset %d does not fit its Go type", typeErr.Field, typeErr.Offset)
	}
	if syntaxErr, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("malformed JSON at offset %d", syntaxErr.Offset)
	}
	if errors.Is(err, errManyValues) {
		return err
	}
	return errors.New("the type's own decoding refused it")
}

type eventKey struct{}

// handling is the event that a context's handler is at work on.
func handling(ctx context.Context) *RawEvent {
	e, _ := ctx.Value(eventKey{}).(*RawEvent)
	return e
}
