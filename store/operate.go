package store

import (
	"context"
	"time"
)

// Operator changes deliveries by hand. Nothing here touches a delivery that a
// worker runs.
type Operator interface {
	// Requeue makes dead deliveries due at now, with their attempts counted
	// from 0 again. One that is not dead is [ErrState], one that does not exist
	// is [ErrNotFound], and then nothing is requeued. Requeued deliveries of a
	// key run in the order of their sequences.
	Requeue(ctx context.Context, ids []DeliveryID, now time.Time) error

	// RequeueWhere requeues up to limit dead deliveries that the filter
	// selects and that did not change after now, those of the oldest events
	// first, and returns how many: repeated with the same now it comes to an
	// end. Its Status must be empty or dead.
	RequeueWhere(ctx context.Context, f Filter, limit int, now time.Time) (int, error)

	// BuryPending makes a pending delivery dead. It does not hold its key.
	BuryPending(ctx context.Context, id DeliveryID, reason string, now time.Time) error

	// ReschedulePending changes when a pending delivery is due.
	ReschedulePending(ctx context.Context, id DeliveryID, dueAt, now time.Time) error

	// Skip lets the deliveries behind a dead one pass that holds its key. It
	// stays dead.
	Skip(ctx context.Context, id DeliveryID, now time.Time) error

	// CancelEvent removes all deliveries of an event of which none has ever
	// been claimed; the event stays as deduplication record, and counts as
	// completed at now. If one was claimed before it is [ErrState], or
	// [ErrRunning] while it runs, and nothing changes.
	CancelEvent(ctx context.Context, eventID string, now time.Time) error

	// DropPending deletes up to limit pending deliveries of a handler as if
	// they had completed at now, and returns how many.
	DropPending(ctx context.Context, handler string, limit int, now time.Time) (int, error)
}

// PurgeRequest says what has outlived its retention. A zero time keeps all of
// its kind.
type PurgeRequest struct {
	// CompletedBefore: events whose last completion is older, their history,
	// and events older than this that never had a delivery.
	CompletedBefore time.Time
	// DeadBefore: dead deliveries that died earlier, unless they hold their key.
	DeadBefore time.Time
	// Limit is the most rows of one batch, and so of one transaction.
	Limit int
}

// PurgeResult is what one batch deleted.
type PurgeResult struct {
	Events, Deliveries, History int64
	// More says that another batch would delete more.
	More bool
}

// Purger deletes what has outlived its retention.
type Purger interface {
	// Purge deletes one batch. It never deletes an event that a delivery still
	// references, nor one of which some completion is younger than
	// CompletedBefore: such an event is the record that keeps its id unique.
	Purge(ctx context.Context, r PurgeRequest) (PurgeResult, error)
}
