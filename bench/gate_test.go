package main

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
)

// fakeBeginner begins transactions that end with an error or without.
type fakeBeginner struct {
	watermillsql.Beginner

	commit error
}

func (f fakeBeginner) BeginTx(context.Context, *sql.TxOptions) (watermillsql.Tx, error) {
	return fakeTx{commit: f.commit}, nil
}

type fakeTx struct {
	watermillsql.Tx

	commit error
}

func (t fakeTx) Commit() error { return t.commit }
func (fakeTx) Rollback() error { return nil }

func TestGateCountsWhatIsCommitted(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, tc := range []struct {
		name   string
		commit error
		end    func(tx watermillsql.Tx) error
		want   int
	}{
		{"commit", nil, watermillsql.Tx.Commit, 2},
		{"failed commit", refused, watermillsql.Tx.Commit, 0},
		{"rollback", nil, watermillsql.Tx.Rollback, 0},
	} {
		done := 0
		g := newGate(fakeBeginner{commit: tc.commit}, func() { done++ })
		tx, err := g.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		g.handled()
		g.handled()
		if done != 0 {
			t.Errorf("%s: %d are done before the end", tc.name, done)
		}
		if err := tc.end(tx); !errors.Is(err, tc.commit) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if done != tc.want {
			t.Errorf("%s: %d are done, want %d", tc.name, done, tc.want)
		}
	}
}

func TestGateShutsBetweenBatches(t *testing.T) {
	t.Parallel()
	g := newGate(fakeBeginner{}, func() {})
	tx, err := g.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	shut := make(chan struct{})
	go func() {
		g.shut()
		close(shut)
	}()
	select {
	case <-shut:
		t.Error("it was shut within a batch")
	default:
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	<-shut
	if _, err := g.BeginTx(t.Context(), nil); !errors.Is(err, errGateShut) {
		t.Errorf("begin after the end: %v", err)
	}
}
