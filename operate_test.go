package relaybus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
)

func idOf(event string) relaybus.DeliveryID { return relaybus.DeliveryID{EventID: event, Handler: "h"} }

// B17: listing, with filters and pages.
func TestListDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := newBed(t, nil, things("h", func(_ context.Context, e *relaybus.RawEvent) error {
			if e.ID == "dead" {
				return relaybus.Permanent(errBoom)
			}
			return nil
		}))
		began := time.Now()
		b.publish(raw("dead", relaybus.Key("k")), raw("done"))
		b.drain()
		pass(time.Hour)
		b.publish(many(250, relaybus.Delay(time.Hour))...)
		for name, c := range map[string]struct {
			f    relaybus.Filter
			want int
		}{
			"all":       {relaybus.Filter{}, 252},
			"pending":   {relaybus.Filter{Status: relaybus.StatusPending}, 250},
			"dead":      {relaybus.Filter{Status: relaybus.StatusDead}, 1},
			"completed": {relaybus.Filter{Status: relaybus.StatusCompleted}, 1},
			"running":   {relaybus.Filter{Status: relaybus.StatusRunning}, 0},
			"handler":   {relaybus.Filter{Handler: "other"}, 0},
			"key":       {relaybus.Filter{Key: "k"}, 1},
			"from":      {relaybus.Filter{From: began.Add(time.Minute)}, 250},
			"to":        {relaybus.Filter{To: began.Add(time.Minute)}, 2},
			"event":     {relaybus.Filter{EventID: "e-00007", EventType: "thing.done"}, 1},
		} {
			if n := len(b.list(c.f)); n != c.want {
				t.Errorf("%s: %d, want %d", name, n, c.want)
			}
		}
		page, err := b.ListDeliveries(ctx, relaybus.Filter{}, relaybus.Page{})
		if err != nil || len(page.Deliveries) != 100 || page.Next == "" || page.Deliveries[0].ID.EventID != "e-00249" {
			t.Errorf("the first page has %d, next %q: %v", len(page.Deliveries), page.Next, err)
		}
		seen := 0
		for p := (relaybus.Page{Limit: 70}); ; {
			page, err := b.ListDeliveries(ctx, relaybus.Filter{}, p)
			if err != nil {
				t.Fatal(err)
			}
			seen += len(page.Deliveries)
			if p.Cursor = page.Next; p.Cursor == "" {
				break
			}
		}
		if seen != 252 {
			t.Errorf("the pages have %d", seen)
		}
		for name, f := range map[string]func() error{
			"negative limit": func() error { _, err := b.ListDeliveries(ctx, relaybus.Filter{}, relaybus.Page{Limit: -1}); return err },
			"huge limit": func() error {
				_, err := b.ListDeliveries(ctx, relaybus.Filter{}, relaybus.Page{Limit: 1e9})
				return err
			},
			"cursor": func() error {
				_, err := b.ListDeliveries(ctx, relaybus.Filter{}, relaybus.Page{Cursor: "' OR 1=1"})
				return err
			},
			"status": func() error {
				_, err := b.ListDeliveries(ctx, relaybus.Filter{Status: "x"}, relaybus.Page{})
				return err
			},
			"time range": func() error {
				_, err := b.ListDeliveries(ctx, relaybus.Filter{From: time.Unix(2, 0), To: time.Unix(1, 0)}, relaybus.Page{})
				return err
			},
			"requeue pending": func() error {
				_, err := b.RequeueWhere(ctx, relaybus.Filter{Status: relaybus.StatusPending})
				return err
			},
			"requeue time range": func() error {
				_, err := b.RequeueWhere(ctx, relaybus.Filter{From: time.Unix(2, 0), To: time.Unix(1, 0)})
				return err
			},
			"no due time":     func() error { return b.Reschedule(ctx, idOf("e-00001"), time.Time{}) },
			"absurd due time": func() error { return b.Reschedule(ctx, idOf("e-00001"), time.Now().AddDate(11, 0, 0)) },
		} {
			if err := f(); !errors.Is(err, relaybus.ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// B17: requeue by id and in bulk; what is not dead is refused, and then none is.
func TestRequeue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		broken := true
		b := newBed(t, func(c *relaybus.Config) { c.Concurrency = 100 }, things("h", func(context.Context, *relaybus.RawEvent) error {
			if broken {
				return relaybus.Permanent(errBoom)
			}
			return nil
		}))
		b.publish(many(1200)...)
		b.drain()
		b.publish(raw("pending", relaybus.Delay(time.Hour)))
		if err := b.Requeue(ctx, idOf("e-00001"), idOf("pending")); !errors.Is(err, relaybus.ErrState) {
			t.Errorf("requeue of one that is not dead: %v", err)
		}
		if err := b.Requeue(ctx, idOf("e-00001"), idOf("none")); !errors.Is(err, relaybus.ErrNotFound) {
			t.Errorf("requeue of one that is not there: %v", err)
		}
		if n := b.stats().Dead; n != 1200 {
			t.Errorf("%d are dead", n)
		}
		if err := b.Requeue(ctx); err != nil {
			t.Errorf("requeue of none: %v", err)
		}
		broken = false
		if err := b.Requeue(ctx, idOf("e-00001"), idOf("e-00001"), idOf("e-00002")); err != nil {
			t.Error(err)
		}
		if d := b.only(relaybus.Filter{EventID: "e-00001"}); d.Attempts != 0 || d.Error != "boom" || d.Status != relaybus.StatusPending {
			t.Errorf("requeued is %+v", d)
		}
		if n := b.drain(); n != 2 {
			t.Errorf("%d ran", n)
		}
		if n, err := b.RequeueWhere(ctx, relaybus.Filter{Status: relaybus.StatusDead, EventType: "thing.done"}); n != 1198 || err != nil {
			t.Errorf("RequeueWhere: %d, %v", n, err)
		}
		if n := b.drain(); n != 1198 {
			t.Errorf("%d ran", n)
		}
	})
}

// F33: nothing touches a delivery that runs.
func TestOperatorsLeaveRunningAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed)).start()
		b.publish(raw("e-1"))
		c := d.next()
		for name, f := range map[string]func() error{
			"bury":       func() error { return b.Bury(ctx, idOf("e-1"), "no") },
			"reschedule": func() error { return b.Reschedule(ctx, idOf("e-1"), time.Now()) },
			"cancel":     func() error { return b.Cancel(ctx, "e-1") },
			"requeue":    func() error { return b.Requeue(ctx, idOf("e-1")) },
			"skip":       func() error { return b.Skip(ctx, idOf("e-1")) },
		} {
			if err := f(); !errors.Is(err, relaybus.ErrRunning) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n, err := b.Drop(ctx, "h"); n != 0 || err != nil {
			t.Errorf("Drop: %d, %v", n, err)
		}
		if d := b.only(relaybus.Filter{Status: relaybus.StatusRunning}); d.Owner == "" {
			t.Errorf("running is %+v", d)
		}
		c.reply <- nil
		synctest.Wait()
		if s := b.stats(); s.Completed != 1 {
			t.Errorf("statistics are %+v", s)
		}
	})
}

// B17: bury, reschedule and cancel what waits; all of them wake the bus.
func TestOperateOnPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		d := newDesk(t)
		b := newBed(t, func(c *relaybus.Config) { c.PollInterval, c.CatalogInterval = time.Hour, time.Hour }, things("h", d.heed))
		deaf(b)
		b.start()
		k, late := relaybus.Key("k"), relaybus.Delay(12*time.Hour)
		b.publish(raw("e-1", k, late), raw("e-2", k), raw("e-3", k), raw("e-4", late), raw("e-5", late))
		d.idle()
		began := time.Now()
		if err := b.Bury(ctx, idOf("e-1"), "no\x00\xff use"); err != nil {
			t.Error(err)
		}
		d.next().reply <- nil
		if err := b.Reschedule(ctx, idOf("e-4"), began); err != nil {
			t.Error(err)
		}
		for range 2 {
			d.next().reply <- nil
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		pass(time.Second)
		if dead := b.only(relaybus.Filter{Status: relaybus.StatusDead}); dead.Error != "no\uFFFD\uFFFD use" || dead.ID.EventID != "e-1" {
			t.Errorf("dead is %+v", dead)
		}
		if err := b.Cancel(ctx, "e-5"); err != nil {
			t.Error(err)
		}
		if err := b.Cancel(ctx, "e-4"); !errors.Is(err, relaybus.ErrState) {
			t.Errorf("cancel of one that ran: %v", err)
		}
		if err := b.Cancel(ctx, "none"); !errors.Is(err, relaybus.ErrNotFound) {
			t.Errorf("cancel of none: %v", err)
		}
		b.publish(raw("e-5", late)) // publishing its id again does nothing
		if n := b.stats().Pending; n != 0 {
			t.Errorf("%d are pending", n)
		}
	})
}

// B17: a paused handler is paused in every process, survives restarts, and goes
// on at once.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed))
		if err := b.Pause(ctx, "h"); !errors.Is(err, relaybus.ErrNotFound) {
			t.Errorf("pause of an unknown handler: %v", err)
		}
		b.start()
		if err := b.Pause(ctx, "h"); err != nil {
			t.Fatal(err)
		}
		newBedOn(t, b.store.Instance(), nil, things("h", d.heed)).start()
		b.publish(raw("e-1"))
		pass(time.Minute)
		d.idle()
		if list, err := b.Catalog(ctx); err != nil || len(list) != 1 || !list[0].Paused {
			t.Errorf("Catalog: %+v, %v", list, err)
		}
		began := time.Now()
		if err := b.Resume(ctx, "h"); err != nil {
			t.Fatal(err)
		}
		d.next().reply <- nil
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// B17: statistics by status and handler.
func TestStatistics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed), relaybus.Handle("g", []string{"*"}, d.heed)).start()
		b.publish(raw("e-1"), raw("e-2", relaybus.Delay(time.Hour)))
		pass(10 * time.Second)
		s := b.stats()
		if s.Running != 2 || s.Pending != 2 || s.Dead != 0 || !s.OldestDueAt.IsZero() || len(s.Handlers) != 2 || s.Handlers[0].Handler != "g" || s.Handlers[1].Running != 1 {
			t.Errorf("statistics are %+v", s)
		}
		d.next().reply <- nil
		d.next().reply <- relaybus.Permanent(errBoom)
		synctest.Wait()
		if s := b.stats(); s.Completed != 1 || s.Dead != 1 || s.Running != 0 {
			t.Errorf("statistics are %+v", s)
		}
	})
}

// B17: drop what a handler has left.
func TestDrop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore), things("g", ignore))
		b.publish(many(1100)...)
		if n, err := b.Drop(t.Context(), "h"); n != 1100 || err != nil {
			t.Errorf("Drop: %d, %v", n, err)
		}
		if n := b.drain(); n != 1100 {
			t.Errorf("%d of the other handler ran", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.publish(raw("e-1"))
		if _, err := b.Drop(ctx, "h"); err == nil {
			t.Error("Drop with a context that has ended: no error")
		}
	})
}

func TestEventIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		b.publish(raw("e-1", relaybus.Header("a", 1)))
		e, deliveries, err := b.Event(t.Context(), "e-1")
		if err != nil || e.ID != "e-1" || string(e.Payload) != `{}` || string(e.Headers.JSON()) != `{"a":1}` || len(deliveries) != 1 {
			t.Errorf("Event: %+v, %+v, %v", e, deliveries, err)
		}
		for _, id := range []string{"", "none", fmt.Sprint("e-1", "\x00")} {
			if _, _, err := b.Event(t.Context(), id); !errors.Is(err, relaybus.ErrNotFound) {
				t.Errorf("Event %q: %v", id, err)
			}
		}
	})
}
