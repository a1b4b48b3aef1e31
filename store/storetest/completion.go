package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func completionCases() []testCase {
	return []testCase{
		{name: "S12 without history completed deliveries are gone", run: withoutHistory},
		{name: "S12 with history they are listed and counted", needs: needsHistory, run: withHistory},
		{name: "S12 history of every way to complete", needs: needsHistory, run: historyOfEveryWay},
		{name: "S12 B18 history is purged", needs: needsHistory, run: historyPurged},
		{name: "S12 history does not change what a claim brings", needs: needsHistory, run: historyChangesNothing},
	}
}

func withoutHistory(b *bed) {
	b.publish(b.event("e", "k", "h", "g"))
	b.complete("w", b.one("w", "h", "e"))
	if got := b.list(store.Filter{Status: store.StatusCompleted}); len(got) != 0 {
		b.t.Errorf("%d completed deliveries are listed", len(got))
	}
	if got := b.list(store.Filter{}); len(got) != 1 || got[0].ID.Handler != "g" {
		b.t.Errorf("listed %+v, want only that of g", got)
	}
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || stats.Completed != 0 || stats.Pending != 1 {
		b.t.Errorf("stats are %+v, %v", stats, err)
	}
	_, deliveries, err := b.s.GetEvent(b.ctx(), "e")
	if err != nil || len(deliveries) != 1 {
		b.t.Errorf("the event has %d deliveries, %v", len(deliveries), err)
	}
}

func withHistory(b *bed) {
	b = b.fresh(b.t, Options{History: true})
	b.publish(b.event("e", "k", "h", "g"), b.event("f", "", "h"))
	for _, c := range b.claim("w", plenty, "h") {
		b.settle("w", reschedule(c, b.now))
	}
	b.pass(time.Second)
	b.complete("w", b.claim("w", plenty, "h")...)
	done := b.now
	b.pass(time.Second)
	got := b.list(store.Filter{Status: store.StatusCompleted})
	if len(got) != 2 {
		b.t.Fatalf("%d completed deliveries are listed, want 2", len(got))
	}
	for _, d := range got {
		if d.Status != store.StatusCompleted || d.ID.Handler != "h" || !d.UpdatedAt.Equal(done) || d.HoldsKey || d.Owner != "" ||
			d.Error != "try again" {
			b.t.Errorf("completed: %+v", d)
		}
		if d.Event.Type != "order.placed.v1" || d.Event.ID != d.ID.EventID || len(d.Event.Payload) != 0 {
			b.t.Errorf("the event of a completed delivery: %+v", d.Event)
		}
	}
	for _, f := range []struct {
		filter store.Filter
		want   int
	}{
		{store.Filter{}, 3},
		{store.Filter{Handler: "h"}, 2},
		{store.Filter{Status: store.StatusCompleted, EventID: "f"}, 1},
		{store.Filter{Status: store.StatusCompleted, Key: "k"}, 1},
		{store.Filter{Status: store.StatusCompleted, Handler: "g"}, 0},
		{store.Filter{Status: store.StatusCompleted, EventType: "order.placed.v1"}, 2},
		{store.Filter{Status: store.StatusCompleted, From: b.now}, 0},
		{store.Filter{Status: store.StatusPending}, 1},
	} {
		if got := b.list(f.filter); len(got) != f.want {
			b.t.Errorf("%+v selects %d deliveries, want %d", f.filter, len(got), f.want)
		}
	}
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || stats.Completed != 2 || stats.Pending != 1 {
		b.t.Errorf("stats are %+v, %v", stats, err)
	}
	_, deliveries, err := b.s.GetEvent(b.ctx(), "e")
	if err != nil || len(deliveries) != 2 {
		b.t.Errorf("the event has %d deliveries, %v; want 2", len(deliveries), err)
	}
	b.wantAppended(b.publish(b.event("e", "k", "h"))[0], false, 0)
}

func historyOfEveryWay(b *bed) {
	b = b.fresh(b.t, Options{History: true})
	b.publish(b.numbered("e", 3, "", "h")...)
	got := b.claim("w", plenty, "h")
	err := b.s.Transact(b.ctx(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
		return b.s.CompleteTx(ctx, tx, "w", got[0].Lease, b.now)
	})
	if err != nil {
		b.t.Fatalf("complete in a transaction: %v", err)
	}
	_ = b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if err := b.s.CompleteTx(ctx, tx, "w", got[1].Lease, b.now); err != nil {
			b.t.Errorf("complete in a transaction: %v", err)
		}
		return errUndo
	})
	b.settle("w", bury(got[1], false))
	b.complete("w", got[2])
	if got := b.list(store.Filter{Status: store.StatusCompleted}); len(got) != 2 {
		b.t.Errorf("%d completed deliveries are listed, want 2", len(got))
	}
	if err := b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: got[1].Event.ID, Handler: "h"}}, b.now); err != nil {
		b.t.Fatalf("requeue: %v", err)
	}
	b.complete("w", b.one("w", "h", got[1].Event.ID))
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || stats.Completed != 3 {
		b.t.Errorf("%d completed, %v; want 3", stats.Completed, err)
	}
	b.wantError(b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: got[2].Event.ID, Handler: "h"}}, b.now))
}

func historyPurged(b *bed) {
	b = b.fresh(b.t, Options{History: true})
	for i := range 6 {
		b.publish(b.event(numberedName("e", i), "k", "h"))
		b.complete("w", b.one("w", "h", numberedName("e", i)))
		b.pass(time.Hour)
	}
	if got := b.purge(store.PurgeRequest{CompletedBefore: epoch(), Limit: 2}); got != (store.PurgeResult{}) {
		b.t.Errorf("purged %+v, though nothing completed earlier", got)
	}
	got := b.purge(store.PurgeRequest{CompletedBefore: epoch().Add(150 * time.Minute), Limit: 2})
	if got.Events != 3 || got.History != 3 || got.Deliveries != 0 {
		b.t.Errorf("purged %+v, want 3 events with their history", got)
	}
	if got := b.list(store.Filter{Status: store.StatusCompleted}); len(got) != 3 {
		b.t.Errorf("%d completed deliveries are left, want 3", len(got))
	}
	got = b.purge(store.PurgeRequest{CompletedBefore: b.now, Limit: 100})
	if got.Events != 3 || got.History != 3 {
		b.t.Errorf("purged %+v, want the other 3", got)
	}
	if stats, err := b.s.Stats(b.ctx(), b.now); err != nil || stats.Completed != 0 {
		b.t.Errorf("%d completed are counted, %v", stats.Completed, err)
	}
}

func historyChangesNothing(b *bed) {
	for _, history := range []bool{false, true} {
		b.t.Run(map[bool]string{false: "without", true: "with"}[history], func(t *testing.T) {
			inner := b.fresh(t, Options{History: history})
			for round := range 3 {
				inner.publish(inner.numbered(numberedName("e", round), 5, "k", "h")...)
				for i := range 5 {
					inner.complete("w", inner.one("w", "h", numberedName(numberedName("e", round), i)))
				}
			}
			inner.counts(0, 0, 0)
			inner.none("w", "h")
		})
	}
}
