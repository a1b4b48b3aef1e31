package memstore

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// countReads counts what the claims of a store read.
func countReads(s *Store) *int {
	reads := new(int)
	s.hooks.step = func(name string, local any) error {
		if c, ok := local.(*claim); ok && name == "pick" {
			for _, v := range c.read.views {
				*reads += len(v.candidates)
			}
		}
		return nil
	}
	return reads
}

func parkPublish(t *testing.T, s *Store, events []store.NewEvent) {
	t.Helper()
	err := s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		_, err := s.Append(ctx, tx, events, checkStart())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func parkClaim(t *testing.T, s *Store, now time.Time) []store.Claimed {
	t.Helper()
	r, err := s.Claim(t.Context(), store.ClaimRequest{
		Owner: "w", Limit: 10, Now: now, Lease: time.Hour,
		Handlers: []store.HandlerLimit{{Handler: store.Handler{ID: "h"}, Limit: 10}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.db.consistent(); err != nil {
		t.Fatal(err)
	}
	return r.Deliveries
}

// sameLane returns an event id whose lane without a key is that of the key.
func sameLane(key string) string {
	for i := 0; ; i++ {
		if id := "u" + strconv.Itoa(i); lane.Of("", id) == lane.Of(key, "") {
			return id
		}
	}
}

// S10: what waits behind a key costs later claims nothing, nor does it hide
// other work of its lane; it comes back in order.
func TestBlockedDeliveriesAreParked(t *testing.T) {
	t.Parallel()
	const followers = 5_000
	s := New(Config{})
	reads := countReads(s)
	var events []store.NewEvent
	for i := range followers + 1 {
		events = append(events, checkEvent(fmt.Sprintf("e%05d", i), "k", "h"))
	}
	// Due after all the others of its lane.
	free := checkEvent(sameLane("k"), "", "h")
	free.DueAt = checkStart()
	parkPublish(t, s, append(events, free))

	taken := parkClaim(t, s, checkStart())
	for n := 1; len(taken) < 2 && n <= followers/lane.ParkBatch; n++ {
		// A claim that has something to return stops after one batch of parking.
		taken = append(taken, parkClaim(t, s, checkStart())...)
	}
	if len(taken) != 2 || taken[0].Event.ID != "e00000" || taken[1].Event.ID != free.ID {
		t.Fatalf("claimed %d, want the head and the free one", len(taken))
	}
	if !taken[0].Followers || taken[1].Followers {
		t.Error("followers are reported wrongly")
	}
	for range 10 {
		parkClaim(t, s, checkStart())
	}
	*reads = 0
	if got := parkClaim(t, s, checkStart()); len(got) != 0 {
		t.Fatalf("claimed %d, want nothing", len(got))
	}
	if *reads > lane.ParkAt+2 {
		t.Errorf("an idle claim read %d deliveries, want at most %d", *reads, lane.ParkAt+2)
	}
	*reads = 0
	list := taken
	for n := range 100 {
		var settlements []store.Settlement
		for _, c := range list {
			settlements = append(settlements, store.Settlement{Lease: c.Lease, Action: store.Complete})
		}
		if _, err := s.Settle(t.Context(), "w", settlements, checkStart()); err != nil {
			t.Fatal(err)
		}
		list = parkClaim(t, s, checkStart())
		if want := fmt.Sprintf("e%05d", n+1); len(list) != 1 || list[0].Event.ID != want {
			t.Fatalf("claimed %d, want %s", len(list), want)
		}
	}
	if limit := 100 * (lane.ParkAt + 4) * 2; *reads > limit {
		t.Errorf("100 claims read %d deliveries, want at most %d", *reads, limit)
	}
}

// A claim that finds only blocked deliveries before something free parks as
// much as it must.
func TestAnEmptyClaimIsExactHoweverMuchIsBlocked(t *testing.T) {
	t.Parallel()
	const followers = 3*lane.ParkBatch + 500
	s := New(Config{})
	head := checkEvent("head", "k", "h")
	head.DueAt = checkStart().Add(time.Hour)
	events := []store.NewEvent{head}
	for i := range followers {
		events = append(events, checkEvent(fmt.Sprintf("e%05d", i), "k", "h"))
	}
	free := checkEvent(sameLane("k"), "", "h")
	free.DueAt = checkStart()
	parkPublish(t, s, append(events, free))
	if got := parkClaim(t, s, checkStart()); len(got) != 1 || got[0].Event.ID != free.ID {
		t.Fatalf("claimed %d, want the free one", len(got))
	}
}

// Parked deliveries keep their state and due time for operators.
func TestParkedDeliveriesLookPending(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	var events []store.NewEvent
	for i := range 2 * lane.ParkAt {
		events = append(events, checkEvent(fmt.Sprintf("e%02d", i), "k", "h"))
	}
	parkPublish(t, s, events)
	head := parkClaim(t, s, checkStart())
	if d := s.db.find("e40", "h"); d.state != parked {
		t.Fatalf("state %d, want parked", d.state)
	}
	page, err := s.List(t.Context(), store.Filter{Status: store.StatusPending}, store.Page{Limit: 1000})
	if err != nil || len(page.Deliveries) != 2*lane.ParkAt-1 {
		t.Fatalf("%d pending, %v", len(page.Deliveries), err)
	}
	stats, err := s.Stats(t.Context(), checkStart())
	if err != nil || stats.Pending != 2*lane.ParkAt-1 || !stats.OldestDueAt.Equal(checkStart().Add(-time.Minute)) {
		t.Errorf("stats %+v, %v", stats, err)
	}
	// Whatever ends the head brings the next one back.
	for i, end := range []func(id store.DeliveryID) error{
		func(store.DeliveryID) error {
			_, err := s.Settle(t.Context(), "w", []store.Settlement{{Lease: head[0].Lease, Action: store.Bury, Hold: true}}, checkStart())
			return err
		},
		func(id store.DeliveryID) error { return s.BuryPending(t.Context(), id, "", checkStart()) },
		func(id store.DeliveryID) error { return s.CancelEvent(t.Context(), id.EventID, checkStart()) },
		func(store.DeliveryID) error {
			_, err := s.DropPending(t.Context(), "h", 1, checkStart())
			return err
		},
	} {
		id := store.DeliveryID{EventID: fmt.Sprintf("e%02d", i), Handler: "h"}
		if err := end(id); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if got := parkClaim(t, s, checkStart()); len(got) != 0 {
				t.Fatalf("claimed %v behind a held key", got)
			}
			if err := s.Skip(t.Context(), id, checkStart()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.db.consistent(); err != nil {
			t.Fatal(err)
		}
		if d := s.db.find(fmt.Sprintf("e%02d", i+1), "h"); d.state != pending {
			t.Fatalf("after step %d the next one is in state %d, want pending", i, d.state)
		}
	}
}

// S10, by rows read: a claim does not grow with the backlog, nor with what
// other handlers have.
func TestClaimsReadWhatTheyNeed(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	var events []store.NewEvent
	for i := range 20_000 {
		events = append(events, checkEvent(fmt.Sprintf("e%05d", i), "", "h", "other"))
	}
	parkPublish(t, s, events)
	reads := countReads(s)
	for range 20 {
		if got := parkClaim(t, s, checkStart()); len(got) != 10 {
			t.Fatalf("claimed %d, want 10", len(got))
		}
	}
	// Each reads its limit, what runs already, and one more, in few rounds.
	if limit := 20 * (200 + 11) * 3; *reads > limit {
		t.Errorf("20 claims read %d deliveries, want at most %d", *reads, limit)
	}
}
