package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// start is the time at which the tests begin.
func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// event is an event for the handlers that is due at start.
func event(id, key string, handlers ...string) store.NewEvent {
	e := store.NewEvent{
		Event: store.Event{
			ID: id, Type: "order.placed", Source: "shop", Key: key,
			Payload: []byte(`{"id":"` + id + `"}`), CreatedAt: start(),
		},
		DueAt: start(),
	}
	for _, h := range handlers {
		e.Handlers = append(e.Handlers, store.Handler{ID: h})
	}
	return e
}

// publish commits events.
func publish(t *testing.T, s *memstore.Store, events ...store.NewEvent) {
	t.Helper()
	err := s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		_, err := s.Append(ctx, tx, events, start())
		return err
	})
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
}

// claim claims as owner "w" for the handlers, each of which takes as many as the limit.
func claim(t *testing.T, s *memstore.Store, limit int, now time.Time, handlers ...string) store.ClaimResult {
	t.Helper()
	r := store.ClaimRequest{Owner: "w", Limit: limit, Now: now, Lease: 30 * time.Second}
	for _, h := range handlers {
		r.Handlers = append(r.Handlers, store.HandlerLimit{Handler: store.Handler{ID: h}, Limit: limit})
	}
	result, err := s.Claim(t.Context(), r)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return result
}

// settle ends the claims of owner "w", all of which must still hold.
func settle(t *testing.T, s *memstore.Store, action store.Action, list []store.Claimed) {
	t.Helper()
	settlements := make([]store.Settlement, len(list))
	for i, c := range list {
		settlements[i] = store.Settlement{Lease: c.Lease, Action: action, DueAt: start()}
	}
	ok, err := s.Settle(t.Context(), "w", settlements, start())
	if err != nil {
		t.Fatalf("%v: %v", action, err)
	}
	for i := range ok {
		if !ok[i] {
			t.Fatalf("%v of %v: lease lost", action, list[i].Lease)
		}
	}
}

// names returns "<event>/<handler>" of each delivery.
func names(list []store.Claimed) []string {
	var names []string
	for _, c := range list {
		names = append(names, c.Event.ID+"/"+c.Lease.Handler)
	}
	return names
}

func TestClaimAndCompleteEverything(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	var events []store.NewEvent
	for i := range 100 {
		events = append(events, event(fmt.Sprintf("e%d", i), "", "mail", "ledger"))
	}
	publish(t, s, events...)
	done := make(map[string]bool)
	for {
		r := claim(t, s, 7, start(), "mail", "ledger")
		if len(r.Deliveries) == 0 {
			if r.More {
				t.Error("an empty claim says that there is more")
			}
			break
		}
		if len(done) < 190 && len(r.Deliveries) != 7 {
			t.Errorf("claimed %d, want 7", len(r.Deliveries))
		}
		for _, name := range names(r.Deliveries) {
			if done[name] {
				t.Errorf("%s was claimed twice", name)
			}
			done[name] = true
		}
		settle(t, s, store.Complete, r.Deliveries)
	}
	if len(done) != 200 {
		t.Errorf("%d deliveries ran, want 200", len(done))
	}
}

func TestKeyedDeliveriesRunInOrder(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	var events []store.NewEvent
	for i := range 200 {
		events = append(events, event(fmt.Sprintf("e%03d", i), fmt.Sprintf("k%d", i%3), "mail"))
	}
	publish(t, s, events...)
	last := make(map[string]int64)
	count := 0
	for {
		r := claim(t, s, 10, start(), "mail")
		if len(r.Deliveries) == 0 {
			break
		}
		seen := make(map[string]bool)
		for _, c := range r.Deliveries {
			if seen[c.Event.Key] {
				t.Fatalf("one claim took two of %s", c.Event.Key)
			}
			seen[c.Event.Key] = true
			if c.Event.Sequence <= last[c.Event.Key] {
				t.Fatalf("%s ran behind its follower", c.Event.ID)
			}
			last[c.Event.Key] = c.Event.Sequence
			count++
		}
		settle(t, s, store.Complete, r.Deliveries)
	}
	if count != 200 {
		t.Errorf("%d deliveries ran, want 200", count)
	}
}
