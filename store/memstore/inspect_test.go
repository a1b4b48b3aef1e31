package memstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func idsOf(events []store.Event) []string {
	list := make([]string, 0, len(events))
	for _, e := range events {
		list = append(list, e.ID)
	}
	return list
}

func inspected(id string) store.NewEvent {
	return store.NewEvent{Event: store.Event{ID: id, Type: "t", Payload: []byte(`"` + id + `"`)}}
}

func TestEventsAreThoseCommittedInTheirOrder(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	first, second, third := s.Begin(), s.Begin(), s.Begin()
	for _, step := range []struct {
		tx *memstore.Transaction
		id string
	}{{first, "a"}, {second, "b"}, {third, "c"}} {
		if _, err := s.Append(t.Context(), step.tx, []store.NewEvent{inspected(step.id)}, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := third.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := s.Instance().Events()
	if got, want := idsOf(events), []string{"b", "a"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	events[0].Payload[1] = 'x'
	if got := string(s.Events()[0].Payload); got != `"b"` {
		t.Errorf("a change of the copy reached the store: payload %s", got)
	}
}

func TestStagedIsWhatATransactionAppended(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	err := s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if staged := memstore.Tx(ctx).Staged(); len(staged) != 0 {
			t.Errorf("%d events are staged before the first append", len(staged))
		}
		for _, id := range []string{"a", "b"} {
			if _, err := s.Append(ctx, tx, []store.NewEvent{inspected(id)}, now); err != nil {
				return err
			}
		}
		staged := memstore.Tx(ctx).Staged()
		if len(staged) != 2 || staged[0].ID != "a" || staged[1].ID != "b" {
			t.Errorf("staged %v, want a and b", staged)
		}
		staged[0].Payload[1] = 'x'
		if n := len(s.Events()); n != 0 {
			t.Errorf("%d events are there before the commit", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.Events()[0].Payload); got != `"a"` {
		t.Errorf("a change of the copy reached the store: payload %s", got)
	}
}
