package relaybus

import (
	"context"
	"time"
)

// Hook observes a bus. A hook implements any of the Hook… interfaces below; one
// that implements none is refused. Hooks are called in the order given, by the
// goroutine at work, so they must be quick. A hook that panics is logged and
// changes nothing.
type Hook any

// EventInfo names an event without its payload.
type EventInfo struct {
	ID, Type, Key              string
	CorrelationID, CausationID string
}

// Published is what became of the events of one publish.
type Published struct {
	// Events are those that were added; an id that existed already is not among
	// them.
	Events []EventInfo
	// Deliveries is the number of deliveries that were added, those included
	// that an event got which existed already.
	Deliveries int
	// Outcome is Committed, Staged or Unknown: what is known not to have been
	// committed is never reported.
	Outcome Outcome
}

// HookPublished is told of events once their commit is known, or that they are
// staged in a transaction whose commit the bus can't see.
type HookPublished interface {
	OnPublished(ctx context.Context, p Published)
}

// HookPublishing sees each message before it is validated, and may add headers
// to it, such as a trace context.
type HookPublishing interface {
	OnPublishing(ctx context.Context, m *Message)
}

// HookUnhandled is told of committed or staged events that no handler gets.
type HookUnhandled interface {
	OnUnhandled(ctx context.Context, e EventInfo)
}

// Claimed is one claim.
type Claimed struct {
	Deliveries int
	Took       time.Duration
	Err        error
}

// HookClaimed is told of every claim.
type HookClaimed interface{ OnClaimed(c Claimed) }

// Attempt names an attempt at a delivery, and says how it ended.
type Attempt struct {
	Event   EventInfo
	Handler string
	// Number counts from 1.
	Number int
	// DueAt is when it was due.
	DueAt time.Time
	// Took is how long the handler ran; 0 if it was not started.
	Took time.Duration
	// Delay is the wait until the next attempt, for those that are retried.
	Delay time.Duration
	// Err is what the handler returned, or nil.
	Err error
}

// HookStarted is told that a handler starts.
type HookStarted interface{ OnStarted(a Attempt) }

// HookSucceeded is told that a delivery is completed, once that is durable.
type HookSucceeded interface{ OnSucceeded(a Attempt) }

// HookRetried is told that an attempt failed and another one will follow.
type HookRetried interface{ OnRetried(a Attempt) }

// HookBuried is told that a delivery is dead.
type HookBuried interface{ OnBuried(a Attempt) }

// HookReleased is told that a claim was given back without a charge.
type HookReleased interface{ OnReleased(a Attempt) }

// HookLeaseLost is told that a claim ended because its lease was lost, or that
// it is unknown whether its end was recorded.
type HookLeaseLost interface{ OnLeaseLost(a Attempt) }

// StoreCall is one call of the store that ended or renewed claims.
type StoreCall struct {
	// Deliveries is how many it was for.
	Deliveries int
	Took       time.Duration
	Err        error
}

// HookSettled is told of every batch of claims that ended.
type HookSettled interface{ OnSettled(c StoreCall) }

// HookRenewed is told of every renewal of leases.
type HookRenewed interface{ OnRenewed(c StoreCall) }

// Purged is what retention deleted.
type Purged struct {
	Events, Deliveries, History int64
	Took                        time.Duration
	Err                         error
}

// HookPurged is told of every run of retention.
type HookPurged interface{ OnPurged(p Purged) }

// Orphaned are deliveries of a handler that this process does not know and
// that no process has recorded.
type Orphaned struct {
	Handler    string
	Deliveries int64
}

// HookOrphaned is told at start of deliveries that nobody will handle.
type HookOrphaned interface{ OnOrphaned(o Orphaned) }

// hooks holds hooks by what they listen to.
type hooks struct {
	all   []Hook
	panic func(value any)
}

// goexit is what is logged of a hook that called runtime.Goexit.
type goexit struct{}

// each calls f for every hook that implements H, and survives its panics.
func each[H any](h *hooks, f func(H)) {
	for _, hook := range h.all {
		if typed, ok := hook.(H); ok {
			h.call(func() { f(typed) })
		}
	}
}

func (h *hooks) call(f func()) {
	finished := false
	defer func() {
		if value := recover(); value != nil {
			h.panic(value)
		} else if !finished {
			h.panic(goexit{})
		}
	}()
	f()
	finished = true
}

// isHook reports whether a value implements any hook.
func isHook(h Hook) bool {
	switch h.(type) {
	case HookPublished, HookPublishing, HookUnhandled, HookClaimed, HookStarted, HookSucceeded, HookRetried,
		HookBuried, HookReleased, HookLeaseLost, HookSettled, HookRenewed, HookPurged, HookOrphaned:
		return true
	default:
		return false
	}
}
