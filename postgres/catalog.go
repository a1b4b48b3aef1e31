package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// RecordHandlers adds or updates entries; see [store.Catalog].
func (s *Store) RecordHandlers(ctx context.Context, entries []store.HandlerEntry, now time.Time) error {
	const op = "record handlers"
	for _, e := range entries {
		if e.ID == "" {
			return invalid(op, "a handler needs an id")
		}
	}
	if len(entries) == 0 {
		return s.usable(ctx, op)
	}
	// In the order of the ids, so that two processes don't wait for each other.
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b store.HandlerEntry) int { return cmp.Compare(a.ID, b.ID) })
	return s.change(ctx, op, func(ctx context.Context, x *session) error {
		handlers := make([]store.Handler, len(entries))
		for i := range entries {
			handlers[i] = entries[i].Handler
		}
		if err := x.addSets(ctx, handlers); err != nil {
			return err
		}
		for _, e := range entries {
			if _, err := x.exec(ctx, s.sql.recordHandler, e.ID, notNil(e.Aliases), notNil(e.Types), now.UnixMilli()); err != nil {
				return err
			}
		}
		return nil
	})
}

func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// Handlers returns the catalogue; see [store.Catalog].
func (s *Store) Handlers(ctx context.Context) ([]store.HandlerEntry, error) {
	var entries []store.HandlerEntry
	err := s.report(ctx, "list handlers", func(ctx context.Context, x *session) error {
		entries = nil
		return x.rows(ctx, s.sql.allHandlers, func(scan func(...any) error) (bool, error) {
			var e store.HandlerEntry
			var recorded *int64
			if err := scan(&e.ID, &e.Aliases, &e.Types, &e.Paused, &e.Retired, &recorded); err != nil {
				return false, err
			}
			if len(e.Aliases) == 0 {
				e.Aliases = nil
			}
			if len(e.Types) == 0 {
				e.Types = nil
			}
			if recorded != nil {
				e.RecordedAt = instant(*recorded)
			}
			entries = append(entries, e)
			return true, nil
		})
	})
	return entries, err
}

// RetireHandler marks an entry retired; see [store.Catalog].
func (s *Store) RetireHandler(ctx context.Context, id string, _ time.Time) error {
	return s.changeHandler(ctx, "retire handler", s.sql.retireHandler, id)
}

// PauseHandler pauses or resumes a handler; see [store.Catalog]. It waits for the
// claims that have begun before: they may not have seen it.
func (s *Store) PauseHandler(ctx context.Context, id string, paused bool, _ time.Time) error {
	const op = "pause handler"
	if err := s.changeHandler(ctx, op, s.sql.pauseHandler, id, paused); err != nil || !paused {
		return err
	}
	return s.change(ctx, op, func(ctx context.Context, x *session) error {
		owners, err := x.numbers(ctx, s.sql.allOwners)
		if err != nil {
			return err
		}
		_, err = x.numbers(ctx, s.sql.lockOwners, owners)
		return err
	})
}

func (s *Store) changeHandler(ctx context.Context, op, text, id string, args ...any) error {
	return s.change(ctx, op, func(ctx context.Context, x *session) error {
		n, err := x.exec(ctx, text, append([]any{id}, args...)...)
		if err == nil && n == 0 {
			err = store.NewError(op, store.ErrNotFound, "", nil)
		}
		return err
	})
}
