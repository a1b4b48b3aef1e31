package store

import "time"

// Event is a fact that was published. The bus has validated and encoded it.
type Event struct {
	// ID is unique in the database.
	ID string
	// Type is the name of the event type.
	Type string
	// Source is the service that published it.
	Source string
	// Key is the ordering key, or "" for an event without one.
	Key string
	// Sequence orders the events of one key by commit. It grows within a key;
	// whether it has gaps is up to the store. 0 for an event without a key.
	Sequence int64
	// Payload is one JSON value.
	Payload []byte
	// Headers is a JSON object, or nil for an event without headers.
	Headers []byte
	// CorrelationID and CausationID are "" when absent.
	CorrelationID string
	CausationID   string
	// CreatedAt is when it was published, by the publisher's clock.
	CreatedAt time.Time
}

// Handler names a handler: its id and the ids it had before. Whatever a store
// does for a handler (deduplication, order, claims) goes by the whole set.
type Handler struct {
	ID      string
	Aliases []string
}

// NewEvent is an event to append and the handlers that are to get it.
type NewEvent struct {
	Event
	// Handlers each get one delivery, unless the event had one for them (or
	// for an alias of theirs) before.
	Handlers []Handler
	// DueAt is when its deliveries may start.
	DueAt time.Time
	// Fresh says that the id was made for this call, so that no event has it. A
	// store need not look for it; if there is one all the same, Append may fail
	// with [ErrConflict] instead of recognising it.
	Fresh bool
}

// Appended is what became of one event of an append.
type Appended struct {
	// Inserted is false when the id existed before.
	Inserted bool
	// Deliveries is the number of deliveries that were added.
	Deliveries int
}
