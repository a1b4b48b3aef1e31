package store

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store/lane"
)

// HandlerLimit is a handler that a worker runs, and how many of its deliveries
// it wants at most.
type HandlerLimit struct {
	Handler
	Limit int
}

// ClaimRequest asks for due deliveries.
type ClaimRequest struct {
	// Owner names the worker instance. Leases belong to the owner on this
	// store instance: a process that starts again under the same name is a new
	// owner, and takes over from its predecessor only once its lease expired.
	Owner string
	// Handlers that have a free slot. A claim gives each of them that has due
	// work a share; whom it serves first rotates from claim to claim. Work of
	// handlers that are not listed costs the claim nothing.
	Handlers []HandlerLimit
	// Limit is the most deliveries that are wanted in all.
	Limit int
	// Now decides what is due and which leases have expired.
	Now time.Time
	// Lease is how long the claim holds. A store may end it up to a twentieth
	// earlier, so that it need not write each time; it never shortens a running
	// lease.
	Lease time.Duration
}

// Lease is the right to settle one claimed delivery.
type Lease struct {
	// EventID and Handler name the delivery. Handler is the id under which it
	// is stored, which may be an alias.
	EventID string
	Handler string
	// Token is the fence.
	Token lane.Token
	// Ref is the store's own locator of the delivery. The bus hands it back
	// untouched; it is never trusted without the token.
	Ref [2]int64
}

// Claimed is a delivery that now runs under a lease.
type Claimed struct {
	Event Event
	Lease Lease
	// Attempt counts from 1: the attempts that ended, and this one.
	Attempt int
	// Lost is how many of the ended attempts ended because the lease was lost
	// to a takeover (its worker died or stalled).
	Lost int
	// Alone says that an earlier claim asked for this one to run alone.
	Alone bool
	// Followers says that further unfinished deliveries of its key were seen,
	// so its completion lets others start. It may be false when unknown.
	Followers bool
	// DueAt is when it became due.
	DueAt time.Time
}

// ClaimResult is what a claim brought.
type ClaimResult struct {
	Deliveries []Claimed
	// More says that due work of the listed handlers was left behind because a
	// limit was reached.
	More bool
	// NextDue is the earliest known time at which further work of the listed
	// handlers becomes due, or the zero time when the store does not know.
	NextDue time.Time
}

// Claimer leases deliveries to workers.
type Claimer interface {
	// Claim takes due deliveries. It takes over from owners whose lease has
	// expired first, which charges one attempt to everything that they ran.
	//
	// A keyed delivery is taken only when no earlier one of its handler and
	// key is unfinished (pending, running, or dead and holding its key) and no
	// other of them runs. One claim never takes two of a key. Deliveries of
	// paused handlers are not taken.
	//
	// Claims of one owner on one store instance run one after the other. A
	// claim that fails leaves nothing running that nobody runs: what it may
	// have recorded is given back, without a charge, by the owner's next claim.
	Claim(ctx context.Context, r ClaimRequest) (ClaimResult, error)

	// Extend renews the owner's leases until now plus lease, and reports for
	// each whether it still holds. A lease that does not is never extended. An
	// owner without leases may call it to keep its lanes.
	Extend(ctx context.Context, owner string, leases []Lease, now time.Time, lease time.Duration) ([]bool, error)

	// Relinquish ends the owner: its lanes are free at once, and whatever it
	// still runs is released without a charge. It may be called for an owner
	// that is not known.
	Relinquish(ctx context.Context, owner string, now time.Time) error
}
