package relaybus

import (
	"context"
	"encoding/json"
	"reflect"
)

// EventType is an event type: its name, which is the contract, and the Go type
// of its payload, which can move.
type EventType[T any] struct{ name string }

// Define declares an event type. The name has 1 to 255 bytes without control
// characters, white space and "*"; what is wrong with it is reported when the
// type is first used. One bus refuses two Go types under one name.
func Define[T any](name string) EventType[T] { return EventType[T]{name: name} }

// Name returns the name of the type.
func (t EventType[T]) Name() string { return t.name }

// New returns a message with the payload, encoded by encoding/json. A string that
// is not valid UTF-8 is refused when the message is published; so is a nested
// json.RawMessage that writes U+FFFD as an escape, which can't be told apart.
func (t EventType[T]) New(payload T, options ...PublishOption) Message {
	encoded, err := encode(payload)
	return newMessage(t.name, goType[T](), encoded, err, options)
}

// Handle returns a handler of this type. The id is stable: deliveries are
// stored under it. See [HandlerOption] for what can be set.
func (t EventType[T]) Handle(id string, handle func(ctx context.Context, e *Event[T]) error, options ...HandlerOption) Handler {
	var run HandlerFunc
	if handle != nil {
		unmarshal := unmarshalerOf(reflect.TypeFor[T]())
		run = func(ctx context.Context, raw *RawEvent) error {
			e, err := decodeWith[T](raw, unmarshal)
			if err != nil {
				return err
			}
			return handle(ctx, e)
		}
	}
	return newHandler(id, []string{t.name}, goType[T](), run, options)
}

// goType is the Go type that a name stands for, or nil for raw JSON, which fits
// any.
func goType[T any]() reflect.Type {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	return t
}

// AnyEventType is an event type of any payload.
type AnyEventType interface {
	Name() string
	payloadType() reflect.Type
}

func (EventType[T]) payloadType() reflect.Type { return goType[T]() }
