package memstore

import (
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// The times of the protocol check. A tick is what makes a lease expire.
const (
	checkLease = 10 * time.Second
	checkTick  = checkLease + time.Second
)

func checkStart() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// scenario is a small world that the protocol check explores: which events
// there are, what two workers do with them, and what may go wrong.
type scenario struct {
	name string
	// before has the events that are committed at the start.
	before []store.NewEvent
	// acts may each happen once, at any time at which they are possible.
	acts []act
	// claims is how many claims each worker makes at most.
	claims []int
	// limit is that of each claim.
	limit int
	// handlers are what each worker runs.
	handlers []store.Handler
	// outcome is how a worker ends an attempt. The default is to complete.
	outcome func(eventID string, attempt int) ending
	// ticks, crashes and losses say how often the clock passes the end of all
	// leases, a worker dies, and a reply gets lost.
	ticks, crashes, losses int
	// leaves says that the first worker relinquishes after its last claim.
	leaves bool
	// fine lets the processes be interrupted between all steps. Without it some
	// of them run together: a claim up to its first reading, a take and the
	// reading behind it, and a settlement and its note in the worker's book.
	fine bool
	// plant plants a fault.
	plant func(h *hooks)
}

// stops says that processes can be interrupted before the step.
func (sc scenario) stops(step string) bool {
	switch step {
	case "take", "park", "record", "tidy", "reconcile":
		return true
	case "recorded", "settled":
		return sc.fine || sc.losses > 0
	default:
		return sc.fine
	}
}

// wider returns the scenario with more claims of each worker, more ticks, and
// interruptions everywhere.
func (sc scenario) wider() scenario {
	sc.name += ", wider"
	sc.claims = slices.Clone(sc.claims)
	for i := range sc.claims {
		sc.claims[i]++
	}
	if sc.ticks > 0 {
		sc.ticks++
	}
	sc.fine = true
	return sc
}

// ending is what a worker does at the end of an attempt.
type ending struct {
	action store.Action
	delay  time.Duration
	hold   bool
	// again repeats the settlement afterwards as a completion; extend renews the
	// lease before; inTx completes in a transaction.
	again, extend, inTx bool
}

// act is something that happens besides the workers.
type act struct {
	name     string
	possible func(w *world) bool
	do       func(w *world) error
	// spec changes the rows as the act should.
	spec func(w *world, rows map[store.DeliveryID]row)
}

// checkEvent is an event for the handlers that was due a minute before the
// start: before any bound that a claim has set.
func checkEvent(id, key string, handlers ...string) store.NewEvent {
	e := store.NewEvent{
		Event: store.Event{ID: id, Type: "t", Source: "s", Key: key, Payload: []byte("1"), CreatedAt: checkStart()},
		DueAt: checkStart().Add(-time.Minute),
	}
	for _, h := range handlers {
		e.Handlers = append(e.Handlers, store.Handler{ID: h})
	}
	return e
}

// commits is a commit by the instance of worker n, or by one of neither when n
// is negative.
func commits(n int, events ...store.NewEvent) act {
	return act{
		name:     "commit " + events[0].ID,
		possible: func(w *world) bool { return n < 0 || !w.nodes[n].dead },
		do: func(w *world) error {
			s := w.outsider
			if n >= 0 {
				s = w.nodes[n].store
			}
			return w.publish(s, events)
		},
		spec: func(_ *world, rows map[store.DeliveryID]row) {
			for _, e := range events {
				for _, h := range e.Handlers {
					rows[store.DeliveryID{EventID: e.ID, Handler: h.ID}] = row{}
				}
			}
		},
	}
}

// requeues is an operator who requeues a dead delivery.
func requeues(id store.DeliveryID) act {
	return act{
		name:     "requeue " + id.EventID,
		possible: func(w *world) bool { return w.last.rows[id].dead },
		do: func(w *world) error {
			return w.outsider.Requeue(w.ctx, []store.DeliveryID{id}, w.now())
		},
		spec: func(_ *world, rows map[store.DeliveryID]row) {
			rows[id] = row{claims: rows[id].claims}
		},
	}
}

// buries is an operator who buries a delivery that waits.
func buries(id store.DeliveryID) act {
	return act{
		name: "bury " + id.EventID,
		possible: func(w *world) bool {
			r, ok := w.last.rows[id]
			return ok && !r.dead && r.owner == 0
		},
		do: func(w *world) error { return w.outsider.BuryPending(w.ctx, id, "by hand", w.now()) },
		spec: func(_ *world, rows map[store.DeliveryID]row) {
			r := rows[id]
			r.dead = true
			rows[id] = r
		},
	}
}

// scenarios are the worlds of the protocol check.
func scenarios() []scenario {
	h := []store.Handler{{ID: "h"}}
	keyed := []store.NewEvent{checkEvent("e1", "k", "h"), checkEvent("e2", "k", "h"), checkEvent("e3", "", "h")}
	first := store.DeliveryID{EventID: "e1", Handler: "h"}
	// once ends the first attempt of the first event in its own way.
	once := func(end ending) func(string, int) ending {
		return func(id string, attempt int) ending {
			if id == first.EventID && attempt == 1 {
				return end
			}
			return ending{action: store.Complete}
		}
	}
	return []scenario{
		{
			name: "takeover", before: keyed, handlers: h, claims: []int{1, 2}, limit: 2, ticks: 1, crashes: 1,
		},
		{
			name: "late renewal", before: keyed[:1], handlers: h, claims: []int{1, 2}, limit: 1, ticks: 1, crashes: 1,
			outcome: once(ending{action: store.Complete, extend: true}),
		},
		{
			name: "retry and repeated settlement", before: keyed[:2], handlers: h, claims: []int{2, 1}, limit: 2, ticks: 1,
			outcome: once(ending{action: store.Reschedule, again: true}),
		},
		{
			name: "delayed retry of the head", before: keyed[:2], handlers: h, claims: []int{2, 1}, limit: 2, ticks: 1,
			outcome: once(ending{action: store.Reschedule, delay: time.Second}),
		},
		{
			name: "completion during a claim", before: keyed, handlers: h, claims: []int{3}, limit: 2, losses: 1, fine: true,
		},
		{
			name: "two workers, lost replies", before: keyed[:1], handlers: h, claims: []int{1, 1}, limit: 2, losses: 1, ticks: 1,
			fine: true,
		},
		{
			name: "late commits", before: keyed[:1], handlers: h, claims: []int{2, 1}, limit: 2,
			acts: []act{commits(0, checkEvent("e4", "k", "h")), commits(-1, checkEvent("e5", "k", "h"))},
		},
		{
			name: "late commits beside one worker", before: keyed[:1], handlers: h, claims: []int{2}, limit: 2, fine: true,
			acts: []act{commits(0, checkEvent("e4", "k", "h")), commits(-1, checkEvent("e5", "k", "h"))},
		},
		{
			name: "dead head lets pass", before: keyed[:2], handlers: h, claims: []int{2, 1}, limit: 2, ticks: 1,
			outcome: once(ending{action: store.Bury}), acts: []act{requeues(first)},
		},
		{
			name: "dead head holds its key", before: keyed[:2], handlers: h, claims: []int{2, 1}, limit: 2, crashes: 1,
			outcome: once(ending{action: store.Bury, hold: true}), acts: []act{requeues(first)},
		},
		{
			name: "operator beside a claim", before: keyed[:2], handlers: h, claims: []int{2, 2}, limit: 2,
			acts: []act{buries(first), requeues(first)},
		},
		{
			name: "transactional handlers", before: keyed[:2], handlers: h, claims: []int{1, 2}, limit: 2, ticks: 1, crashes: 1,
			outcome: func(string, int) ending { return ending{action: store.Complete, inTx: true} },
		},
		{
			name: "shutdown", before: keyed[:2], handlers: h, claims: []int{1, 2}, limit: 2, ticks: 1, leaves: true,
		},
		{
			name:     "renamed handler",
			before:   []store.NewEvent{checkEvent("e1", "k", "old"), checkEvent("e2", "k", "new")},
			handlers: []store.Handler{{ID: "new", Aliases: []string{"old"}}},
			claims:   []int{2, 1}, limit: 1,
			outcome: once(ending{action: store.Bury}), acts: []act{requeues(store.DeliveryID{EventID: "e1", Handler: "old"})},
		},
	}
}
