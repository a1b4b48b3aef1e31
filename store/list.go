package store

import (
	"context"
	"time"
)

// Status is the state of a delivery as operators see it.
type Status string

const (
	// StatusPending is waiting for its time, for a worker, or behind its key.
	StatusPending Status = "pending"
	// StatusRunning is claimed under a lease. It is derived, never stored.
	StatusRunning Status = "running"
	// StatusDead is given up; kept until it is requeued or purged.
	StatusDead Status = "dead"
	// StatusCompleted is done; listed only with completion history.
	StatusCompleted Status = "completed"
)

// DeliveryID names a delivery.
type DeliveryID struct {
	EventID string
	Handler string
}

// Delivery is a delivery as operators see it.
type Delivery struct {
	ID     DeliveryID
	Status Status
	// Event is the event without its payload and headers; GetEvent has them.
	Event Event
	// Attempts counts attempts that ended; Lost those of them that ended by a
	// lost lease.
	Attempts int
	Lost     int
	DueAt    time.Time
	// UpdatedAt is when the delivery last changed.
	UpdatedAt time.Time
	// Error is the last recorded failure.
	Error string
	// HoldsKey says that it is dead and blocks its key.
	HoldsKey bool
	// Owner is the worker that runs it, when running.
	Owner string
}

// Filter selects deliveries. Empty fields select everything.
type Filter struct {
	Status    Status
	Handler   string
	EventType string
	EventID   string
	// Key selects deliveries of one ordering key.
	Key string
	// HoldsKey selects dead deliveries that block their key.
	HoldsKey bool
	// From and To bound the creation time of the event: From <= t < To.
	From, To time.Time
}

// Page selects a part of a listing.
type Page struct {
	// Limit is the most rows of the page, from 1 to [MaxPageSize].
	Limit int
	// Cursor is the Next of the page before, or "" for the first. A cursor that
	// the store cannot have made is [ErrInvalidArgument].
	Cursor string
}

// MaxPageSize is the most rows of one page.
const MaxPageSize = 1000

// DeliveryPage is a page of a listing, the newest event first.
type DeliveryPage struct {
	Deliveries []Delivery
	// Next is the cursor of the next page, or "" after the last one.
	Next string
}

// Stats counts deliveries.
type Stats struct {
	Pending, Running, Dead, Completed int64
	// Held counts dead deliveries that block their key; they are in Dead, too.
	Held int64
	// OldestDueAt is the due time of the oldest pending delivery that is due
	// and not running, or the zero time.
	OldestDueAt time.Time
	// Handlers has the counts of each handler that has deliveries, in the order
	// of their ids.
	Handlers []HandlerStats
}

// HandlerStats counts the deliveries of one handler.
type HandlerStats struct {
	Handler                string
	Pending, Running, Dead int64
	OldestDueAt            time.Time
}

// Lister reads what is there.
type Lister interface {
	// List returns a page of deliveries.
	List(ctx context.Context, f Filter, p Page) (DeliveryPage, error)
	// GetEvent returns an event with its payload and its unfinished or dead
	// deliveries (completed ones with history), or [ErrNotFound].
	GetEvent(ctx context.Context, id string) (Event, []Delivery, error)
	// Stats counts deliveries. It reads all of them and is not for hot paths.
	Stats(ctx context.Context, now time.Time) (Stats, error)
}
