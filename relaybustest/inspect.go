package relaybustest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// Named is an event type: what [relaybus.Define] returns, or a [TypeName].
type Named interface{ Name() string }

// TypeName is the name of an event type that has no Go type.
type TypeName string

// Name returns the name.
func (n TypeName) Name() string { return string(n) }

// Published returns all committed events in the order of their commits,
// whichever bus or transaction they came from. Events that retention has
// purged are gone.
func (b *Bus) Published() []*relaybus.RawEvent {
	stored := b.Store.Events()
	events := make([]*relaybus.RawEvent, len(stored))
	for i := range stored {
		events[i] = relaybus.EventOf(stored[i])
	}
	return events
}

// Events returns the committed events of a type in the order of their commits.
// The test fails when the payload of one does not fit the type.
func Events[T any](b *Bus, eventType relaybus.EventType[T]) []*relaybus.Event[T] {
	b.tb.Helper()
	return typed(b, eventType, b.Published())
}

// Staged returns the events that have been published in the open transaction
// of the context, in their order: what a service published before anything is
// committed. They have no sequences yet. The test fails when the context
// carries no transaction of the bus's store; a transaction that Store.Begin
// returned has them by its own method Staged.
func (b *Bus) Staged(ctx context.Context) []*relaybus.RawEvent {
	b.tb.Helper()
	for _, tx := range store.TxsFrom(ctx) {
		own, ok := tx.(*memstore.Transaction)
		if !ok || b.Store.CheckTx(ctx, own) != nil {
			continue
		}
		staged := own.Staged()
		events := make([]*relaybus.RawEvent, len(staged))
		for i := range staged {
			events[i] = relaybus.EventOf(staged[i].Event)
		}
		return events
	}
	b.errorf("relaybustest: staged events: the context carries no open transaction of the bus's store")
	return nil
}

// StagedEvents is [Bus.Staged] for one event type.
func StagedEvents[T any](ctx context.Context, b *Bus, eventType relaybus.EventType[T]) []*relaybus.Event[T] {
	b.tb.Helper()
	return typed(b, eventType, b.Staged(ctx))
}

func typed[T any](b *Bus, eventType relaybus.EventType[T], events []*relaybus.RawEvent) []*relaybus.Event[T] {
	b.tb.Helper()
	var list []*relaybus.Event[T]
	for _, raw := range ofType(events, eventType) {
		e, err := relaybus.Decode[T](raw)
		if err != nil {
			b.errorf("relaybustest: event %s: %v", raw.ID, err)
			continue
		}
		list = append(list, e)
	}
	return list
}

func ofType(events []*relaybus.RawEvent, eventType Named) []*relaybus.RawEvent {
	name := eventType.Name()
	return slices.DeleteFunc(slices.Clone(events), func(e *relaybus.RawEvent) bool { return e.Type != name })
}

// Handled returns the ids of the events that a handler of this bus has handled
// with success, in the order in which their completions were recorded.
func (b *Bus) Handled(handler string) []string { return b.handled.of(handler) }

// Dead returns the dead deliveries, those of the oldest events first.
func (b *Bus) Dead() []relaybus.Delivery {
	return b.deliveries(func(d relaybus.Delivery) bool { return d.Status == relaybus.StatusDead })
}

// Pending returns the deliveries that wait for their time, for a worker, or
// behind others of their key, those of the oldest events first.
func (b *Bus) Pending() []relaybus.Delivery {
	return b.deliveries(func(d relaybus.Delivery) bool { return d.Status == relaybus.StatusPending })
}

// record is a hook that remembers what was handled.
type record struct {
	mu   sync.Mutex
	list []relaybus.Attempt
}

var _ relaybus.HookSucceeded = (*record)(nil)

// OnSucceeded is called when a completion is durable.
func (r *record) OnSucceeded(a relaybus.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, a)
}

func (r *record) of(handler string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for _, a := range r.list {
		if a.Handler == handler {
			ids = append(ids, a.Event.ID)
		}
	}
	return ids
}

var _ Named = relaybus.EventType[json.RawMessage]{}
