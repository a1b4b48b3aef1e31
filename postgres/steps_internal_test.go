package postgres

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// slowly takes a while for each statement, unless its context ends first.
type slowly struct{ takes time.Duration }

func (s slowly) exec(ctx context.Context, _ string, _ ...any) (int64, error) {
	select {
	case <-time.After(s.takes):
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (s slowly) rows(ctx context.Context, text string, _ scanRow, args ...any) error {
	_, err := s.exec(ctx, text, args...)
	return err
}

// A transaction of many steps may take longer than one of them; a step that is under way when the caller's context ends
// goes on for a while, and none begins afterwards.
func TestStepsHaveTimesOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := steps{slowly{patience - time.Second}, "work"}
		for range 5 {
			if _, err := x.exec(t.Context(), ""); err != nil {
				t.Fatalf("execute: %v", err)
			}
			if err := x.rows(t.Context(), "", noRows); err != nil {
				t.Fatalf("query: %v", err)
			}
		}
		x = steps{slowly{patience + time.Second}, "work"}
		if _, err := x.exec(t.Context(), ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a step that takes too long: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		x = steps{slowly{time.Second + grace/2}, "work"}
		if _, err := x.exec(ctx, ""); err != nil {
			t.Errorf("a step that was under way at the end of the context: %v", err)
		}
		if _, err := x.exec(ctx, ""); !errors.Is(err, store.ErrTimeout) {
			t.Errorf("a step after the end of the context: %v", err)
		}
	})
}
