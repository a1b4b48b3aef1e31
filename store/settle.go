package store

import (
	"context"
	"time"
)

// Action is what becomes of a claimed delivery.
type Action uint8

const (
	// Complete ends the delivery with success: it is deleted, or kept as history.
	Complete Action = iota + 1
	// Reschedule ends the attempt: it is charged, and the delivery is due again
	// at DueAt.
	Reschedule
	// Release ends the claim without a charge. The delivery is due at DueAt, or
	// as before when DueAt is zero.
	Release
	// Bury ends the attempt: it is charged, and the delivery is dead.
	Bury
)

// String returns the word for the action.
func (a Action) String() string {
	switch a {
	case Complete:
		return "complete"
	case Reschedule:
		return "reschedule"
	case Release:
		return "release"
	case Bury:
		return "bury"
	default:
		return "unknown"
	}
}

// Settlement ends one claim.
type Settlement struct {
	Lease  Lease
	Action Action
	// DueAt is used by Reschedule and Release.
	DueAt time.Time
	// Error is the text that is kept with the delivery (Reschedule, Bury). The
	// bus has made it valid UTF-8 without NUL and bounded its length.
	Error string
	// Hold keeps the key of a buried delivery blocked (Bury). It is ignored for
	// a delivery without a key.
	Hold bool
	// Alone asks that the next claim is marked to run alone (Release).
	Alone bool
}

// Settler ends claims.
type Settler interface {
	// Settle ends claims, in one transaction where the database has them. ok[i]
	// is true only when it is proven that settlement i was applied. false means
	// that the lease was lost: nothing was changed for it, and the others are
	// not affected. A token that the store cannot have issued is
	// [ErrInvalidToken], before the database is asked and before anything is
	// changed.
	//
	// When the error matches [ErrOutcomeUnknown] the call may be repeated: a
	// settlement that had been applied then reports false.
	Settle(ctx context.Context, owner string, list []Settlement, now time.Time) (ok []bool, err error)

	// CompleteTx completes the delivery inside the transaction, so that the
	// caller's writes and the completion commit together. A lost lease is
	// [ErrLeaseLost], from here or from the commit; the caller must roll back.
	CompleteTx(ctx context.Context, tx Tx, owner string, l Lease, now time.Time) error
}
