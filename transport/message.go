package transport

import "time"

// Message is an event on its way through a broker. What one transport sends,
// another of its kind receives unchanged, with Headers equal by value.
type Message struct {
	// ID is the id of the event. It is the same at every attempt to send it.
	ID string
	// Type is the name of the event type.
	Type string
	// Source is the service that published the event.
	Source string
	// Key is the ordering key, or "" for an event without one.
	Key string
	// CorrelationID and CausationID are "" when absent.
	CorrelationID string
	CausationID   string
	// CreatedAt is when the event was published, in UTC to the millisecond.
	CreatedAt time.Time
	// Payload is one JSON value. A transport does not change it.
	Payload []byte
	// Headers is a JSON object, or nil. W3C trace context travels in it.
	Headers []byte
}

// Inbound is a message as it came from a broker.
type Inbound struct {
	// Message is what could be decoded. Nothing of it is validated: another
	// program may have written it.
	Message
	// Malformed says why the message is not an event (an envelope that can't
	// be decoded, an id or type that is missing or there twice), or is nil. A
	// malformed message is handed over like any other, so that the bus decides
	// what becomes of it.
	Malformed error
	// Raw is the body as the broker had it. It is set for malformed messages.
	Raw []byte
	// Position says where the message is at the broker, in the broker's terms
	// and for people: "orders/3@1042".
	Position string
	// Redeliveries is how often the message was handed over before, as far as
	// the transport knows; 0 when it does not know.
	Redeliveries int
}
