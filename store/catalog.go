package store

import (
	"context"
	"time"
)

// HandlerEntry is a handler as the catalogue knows it.
type HandlerEntry struct {
	Handler
	// Types are the event types and patterns ("order.*") that it takes.
	Types []string
	// Paused says that no process claims its deliveries.
	Paused bool
	// Retired says that no publisher creates deliveries for it any more.
	Retired bool
	// RecordedAt is when a process last recorded it.
	RecordedAt time.Time
}

// Catalog keeps which handlers exist, for publishers that don't run them.
type Catalog interface {
	// RecordHandlers adds or updates entries, in one transaction. A retired
	// entry that is recorded again is active again. Paused stays as it is.
	RecordHandlers(ctx context.Context, entries []HandlerEntry, now time.Time) error

	// Handlers returns all entries in the order of their ids. It includes
	// handlers that only have deliveries, with no Types.
	Handlers(ctx context.Context) ([]HandlerEntry, error)

	// RetireHandler marks an entry retired; its deliveries stay. An unknown id
	// is [ErrNotFound].
	RetireHandler(ctx context.Context, id string, now time.Time) error

	// PauseHandler pauses or resumes the handler in all processes: once it has
	// returned, no claim takes deliveries of a paused handler. An unknown id is
	// [ErrNotFound].
	PauseHandler(ctx context.Context, id string, paused bool, now time.Time) error
}
