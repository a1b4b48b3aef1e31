package sqlite

import (
	"context"
	"encoding/json"
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
		return ended(ctx, op)
	}
	return s.write(ctx, op, func(ctx context.Context, x *session) error {
		for _, e := range entries {
			aliases, err := textList(e.Aliases)
			if err != nil {
				return err
			}
			types, err := textList(e.Types)
			if err != nil {
				return err
			}
			if _, err := x.exec(ctx, s.sql.recordHandler, e.ID, aliases, types, now.UnixMilli()); err != nil {
				return err
			}
			if _, err := x.needSet(ctx, e.Handler); err != nil {
				return err
			}
		}
		return nil
	})
}

func textList(list []string) (string, error) {
	if len(list) == 0 {
		return "[]", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// Handlers returns the catalogue; see [store.Catalog].
func (s *Store) Handlers(ctx context.Context) ([]store.HandlerEntry, error) {
	var entries []store.HandlerEntry
	err := s.read(ctx, "list handlers", func(ctx context.Context, x *session) error {
		return x.rows(ctx, s.sql.allHandlers, func(scan func(...any) error) (bool, error) {
			var e store.HandlerEntry
			var aliases, types string
			var recorded *int64
			if err := scan(&e.ID, &aliases, &types, &e.Paused, &e.Retired, &recorded); err != nil {
				return false, err
			}
			if err := json.Unmarshal([]byte(aliases), &e.Aliases); err != nil {
				return false, err
			}
			if err := json.Unmarshal([]byte(types), &e.Types); err != nil {
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

// PauseHandler pauses or resumes a handler; see [store.Catalog].
func (s *Store) PauseHandler(ctx context.Context, id string, paused bool, _ time.Time) error {
	return s.changeHandler(ctx, "pause handler", s.sql.pauseHandler, id, paused)
}

func (s *Store) changeHandler(ctx context.Context, op, text, id string, args ...any) error {
	return s.write(ctx, op, func(ctx context.Context, x *session) error {
		n, err := x.exec(ctx, text, append([]any{id}, args...)...)
		if err == nil && n == 0 {
			err = store.NewError(op, store.ErrNotFound, "", nil)
		}
		return err
	})
}

func instant(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }
