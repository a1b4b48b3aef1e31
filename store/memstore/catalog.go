package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// RecordHandlers adds or updates entries of the catalogue; see [store.Catalog].
func (s *Store) RecordHandlers(ctx context.Context, entries []store.HandlerEntry, now time.Time) error {
	return s.operate(ctx, "record handlers", func(op string) error {
		for _, e := range entries {
			if e.ID == "" {
				return store.NewError(op, store.ErrInvalidArgument, "a handler needs an id", nil)
			}
		}
		for _, e := range entries {
			h := s.db.handler(e.ID)
			if !h.recorded || h.retired || !slices.Equal(h.types, e.Types) || !slices.Equal(h.aliases, e.Aliases) {
				s.db.changes++ // others wait for the news, too
				s.own++
			}
			h.recorded, h.retired = true, false
			h.at = millis(now)
			h.types, h.aliases = slices.Clone(e.Types), slices.Clone(e.Aliases)
		}
		return nil
	})
}

// Handlers returns the catalogue; see [store.Catalog].
func (s *Store) Handlers(ctx context.Context) ([]store.HandlerEntry, error) {
	if err := alive(ctx, "read handlers"); err != nil {
		return nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	var entries []store.HandlerEntry
	for _, id := range slices.Sorted(maps.Keys(s.db.handlers)) {
		h := s.db.handlers[id]
		if !h.known() {
			continue
		}
		e := store.HandlerEntry{
			Handler: store.Handler{ID: id, Aliases: slices.Clone(h.aliases)},
			Types:   slices.Clone(h.types),
			Paused:  h.paused,
			Retired: h.retired,
		}
		if h.recorded {
			e.RecordedAt = instant(h.at)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// RetireHandler marks an entry retired; see [store.Catalog]. It may be one that
// only has deliveries, which makes it an entry of its own.
func (s *Store) RetireHandler(ctx context.Context, id string, now time.Time) error {
	return s.operate(ctx, "retire handler", func(op string) error {
		h, err := s.db.entry(op, id, now)
		if err != nil {
			return err
		}
		h.retired = true
		s.db.changes++
		s.own++
		return nil
	})
}

// PauseHandler pauses or resumes a handler; see [store.Catalog]. A handler is
// paused, too, while one of its aliases is.
func (s *Store) PauseHandler(ctx context.Context, id string, paused bool, now time.Time) error {
	return s.operate(ctx, "pause handler", func(op string) error {
		h, err := s.db.entry(op, id, now)
		if err != nil {
			return err
		}
		h.paused = paused
		if !paused {
			// Bounds speak of deliveries, not of pauses, so they still hold.
			s.db.changes++
			s.own++
		}
		return nil
	})
}

// entry returns a known handler, from now on with an entry.
func (db *database) entry(op, id string, now time.Time) (*handler, error) {
	h := db.handlers[id]
	if h == nil || !h.known() {
		return nil, store.NewError(op, store.ErrNotFound, "", nil)
	}
	if !h.recorded {
		h.recorded, h.at = true, millis(now)
	}
	return h, nil
}
