package memstore

import (
	"bytes"

	"github.com/relaybus-go/relaybus/store"
)

// Events returns the events that the store has, in the order in which they were
// committed, with payloads and headers. It is for tests: it copies everything.
func (s *Store) Events() []store.Event {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	events := make([]store.Event, 0, len(s.db.events))
	for e := range s.db.log.all() {
		data := e.data
		data.Payload, data.Headers = bytes.Clone(data.Payload), bytes.Clone(data.Headers)
		events = append(events, data)
	}
	return events
}

// Staged returns the events that were appended in the transaction, in their
// order, as they were passed: without sequences, and with those whose ids exist
// already. After the end of the transaction it still returns them. It is for
// tests: it copies everything.
func (tx *Transaction) Staged() []store.NewEvent {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	var events []store.NewEvent
	for _, step := range tx.work.steps {
		events = append(events, cloneEvents(step.events)...)
	}
	return events
}
