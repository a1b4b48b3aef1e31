package memstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// An instance has owners of its own: the same name is another owner, which
// takes over only when the lease has expired.
func TestInstancesHaveOwnersOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	other := s.Instance()
	publish(t, s, event("e", "", "h"))
	first := claim(t, s, 1, start(), "h").Deliveries
	if got := claim(t, other, 1, start().Add(29*time.Second), "h").Deliveries; len(got) != 0 {
		t.Fatalf("taken from a live lease: %v", names(got))
	}
	second := claim(t, other, 1, start().Add(30*time.Second), "h").Deliveries
	if len(second) != 1 || second[0].Attempt != 2 || second[0].Lost != 1 {
		t.Fatalf("takeover: %+v", second)
	}
	ok, err := s.Settle(t.Context(), "w", []store.Settlement{{Lease: first[0].Lease, Action: store.Complete}}, start())
	if err != nil || ok[0] {
		t.Errorf("late completion: %v, %v, want false", ok, err)
	}
	holds, err := s.Extend(t.Context(), "w", []store.Lease{first[0].Lease}, start(), time.Hour)
	if err != nil || holds[0] {
		t.Errorf("late renewal: %v, %v, want false", holds, err)
	}
	settle(t, other, store.Complete, second)
}

// What another instance commits is found at once, although this one knew that
// the lane had nothing.
func TestBoundsDontHideOtherInstances(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	other := s.Instance()
	publish(t, s, event("e1", "k", "h"))
	for _, publisher := range []*memstore.Store{s, other, s, other} {
		r := claim(t, s, 5, start(), "h")
		settle(t, s, store.Complete, r.Deliveries)
		if r := claim(t, s, 5, start(), "h"); len(r.Deliveries) != 0 {
			t.Fatalf("claimed %v, want nothing", names(r.Deliveries))
		}
		next := event("", "k", "h")
		next.ID = "next-" + time.Now().Format(time.RFC3339Nano)
		next.DueAt = start().Add(-time.Hour)
		publish(t, publisher, next)
		r = claim(t, s, 5, start(), "h")
		if got := names(r.Deliveries); !slices.Equal(got, []string{next.ID + "/h"}) {
			t.Fatalf("claimed %v, want %s", got, next.ID)
		}
		settle(t, s, store.Release, r.Deliveries)
	}
}

func TestWakeSignalsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		other := s.Instance()
		ctx, cancel := context.WithCancel(t.Context())
		signals, done := 0, make(chan error)
		go func() { done <- other.Wake(ctx, func() { signals++ }) }()
		synctest.Wait()
		expect := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := signals > 0; got != want {
				t.Errorf("%s: signalled %t, want %t", what, got, want)
			}
			signals = 0
		}
		publish(t, s, event("e1", "", "h"))
		expect("commit", true)
		publish(t, s, event("e2", ""))
		expect("an event for nobody", false)
		tx := s.Begin()
		if _, err := s.Append(ctx, tx, []store.NewEvent{event("e3", "", "h")}, start()); err != nil {
			t.Fatal(err)
		}
		expect("append before the commit", false)
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		expect("rollback", false)
		r := claim(t, s, 5, start(), "h")
		expect("claim", false)
		settle(t, s, store.Release, r.Deliveries)
		expect("release", true)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Wake returned %v, want nil", err)
		}
		publish(t, s, event("e4", "", "h"))
		expect("after the end", false)
	})
}

func TestErrorsOfAnEndedContext(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	why := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := s.Claim(ctx, store.ClaimRequest{Owner: "w", Limit: 1, Now: start(), Lease: time.Second})
	if !errors.Is(err, store.ErrTimeout) || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("claim: %v, want ErrTimeout with the context's error and its cause", err)
	}
	var typed *store.Error
	if !errors.As(err, &typed) || typed.Op != "claim deliveries" {
		t.Errorf("claim: %#v, want a *store.Error that names the step", err)
	}
}
