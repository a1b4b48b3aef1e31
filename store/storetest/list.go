package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func listCases() []testCase {
	return []testCase{
		{name: "B17 S14 each filter selects what it says", run: listFilters},
		{name: "B17 filters combine", run: listFiltersCombine},
		{name: "B17 pages cover everything once, the newest first", run: listPages},
		{name: "B17 pages stay sound while deliveries come and go", run: listPagesWhileChanging},
		{name: "B17 a listed delivery says what is known of it", run: listedDelivery},
		{name: "B17 GetEvent", run: getEvent},
		{name: "B17 Stats", run: stats},
		{name: "S14 page sizes out of range are refused", run: pageLimits},
	}
}

// listData makes deliveries of every status, handler, type and time.
func (b *bed) listData() {
	b.t.Helper()
	var events []store.NewEvent
	for i := range 24 {
		key := ""
		if i%3 == 0 {
			key = numberedName("k", i%2)
		}
		e := b.event(numberedName("e", i), key, "h", "g")
		e.Type = fmt.Sprintf("type%d.v1", i%4)
		e.CreatedAt = b.now.Add(time.Duration(i) * time.Minute)
		events = append(events, e)
	}
	b.publish(events...)
	b.pass(time.Hour)
	got := b.claim("w", 12, "h")
	for i, c := range got[:6] {
		b.settle("w", bury(c, i%2 == 0))
	}
}

func listFilters(b *bed) {
	b.listData()
	all := b.list(store.Filter{})
	if len(all) != 48 {
		b.t.Fatalf("%d deliveries are listed, want 48", len(all))
	}
	from, to := epoch().Add(5*time.Minute), epoch().Add(11*time.Minute)
	filters := map[string]struct {
		filter store.Filter
		match  func(d store.Delivery) bool
	}{
		"pending": {store.Filter{Status: store.StatusPending}, func(d store.Delivery) bool { return d.Status == store.StatusPending }},
		"running": {store.Filter{Status: store.StatusRunning}, func(d store.Delivery) bool { return d.Status == store.StatusRunning }},
		"dead":    {store.Filter{Status: store.StatusDead}, func(d store.Delivery) bool { return d.Status == store.StatusDead }},
		"handler": {store.Filter{Handler: "g"}, func(d store.Delivery) bool { return d.ID.Handler == "g" }},
		"type":    {store.Filter{EventType: "type1.v1"}, func(d store.Delivery) bool { return d.Event.Type == "type1.v1" }},
		"event":   {store.Filter{EventID: "e-7"}, func(d store.Delivery) bool { return d.ID.EventID == "e-7" }},
		"key":     {store.Filter{Key: "k-1"}, func(d store.Delivery) bool { return d.Event.Key == "k-1" }},
		"held":    {store.Filter{HoldsKey: true}, func(d store.Delivery) bool { return d.HoldsKey }},
		"from":    {store.Filter{From: from}, func(d store.Delivery) bool { return !d.Event.CreatedAt.Before(from) }},
		"to":      {store.Filter{To: to}, func(d store.Delivery) bool { return d.Event.CreatedAt.Before(to) }},
		"from-to": {store.Filter{From: from, To: to}, func(d store.Delivery) bool {
			return !d.Event.CreatedAt.Before(from) && d.Event.CreatedAt.Before(to)
		}},
		"empty range": {store.Filter{From: to, To: from}, func(store.Delivery) bool { return false }},
		"completed":   {store.Filter{Status: store.StatusCompleted}, func(store.Delivery) bool { return false }},
	}
	for name, f := range filters {
		var want []store.Delivery
		for _, d := range all {
			if f.match(d) {
				want = append(want, d)
			}
		}
		if len(want) == 0 && name != "empty range" && name != "completed" && name != "held" {
			b.t.Fatalf("%s: no delivery would match", name)
		}
		if got := b.list(f.filter); !slices.Equal(deliveryNames(got), deliveryNames(want)) {
			b.t.Errorf("%s: listed %v, want %v", name, deliveryNames(got), deliveryNames(want))
		}
	}
}

func deliveryNames(list []store.Delivery) []string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.ID.EventID + "/" + d.ID.Handler
	}
	return names
}

func listFiltersCombine(b *bed) {
	b.listData()
	all := b.list(store.Filter{})
	for _, d := range all {
		exact := store.Filter{
			Status: d.Status, Handler: d.ID.Handler, EventType: d.Event.Type, EventID: d.ID.EventID, Key: d.Event.Key, HoldsKey: d.HoldsKey,
			From: d.Event.CreatedAt, To: d.Event.CreatedAt.Add(time.Millisecond),
		}
		if got := b.list(exact); len(got) != 1 || got[0].ID != d.ID {
			b.t.Errorf("%+v selects %v, want only %v", exact, deliveryNames(got), d.ID)
		}
		wrong := exact
		wrong.EventType = "type9.v1"
		if got := b.list(wrong); len(got) != 0 {
			b.t.Errorf("%+v selects %v", wrong, deliveryNames(got))
		}
	}
}

func listPages(b *bed) {
	b.listData()
	// Some events of one millisecond, too.
	b.publish(b.numbered("same", 10, "", "h", "g", "f")...)
	all := b.list(store.Filter{})
	if len(all) != 78 {
		b.t.Fatalf("%d deliveries are listed, want 78", len(all))
	}
	for i := 1; i < len(all); i++ {
		if all[i].Event.CreatedAt.After(all[i-1].Event.CreatedAt) && all[i].Event.ID[0] == all[i-1].Event.ID[0] {
			b.t.Fatalf("%s comes after the older %s", all[i].ID.EventID, all[i-1].ID.EventID)
		}
	}
	for _, f := range []store.Filter{{}, {Handler: "h"}, {Status: store.StatusPending}, {Status: store.StatusRunning}, {EventType: "type1.v1"}} {
		want := deliveryNames(b.list(f))
		for _, limit := range []int{1, 2, 3, 7, len(want), len(want) + 1, store.MaxPageSize} {
			if limit == 0 {
				continue
			}
			got, err := listAll(b.ctx(), b.s, f, limit)
			if err != nil {
				b.t.Fatalf("pages of %d: %v", limit, err)
			}
			if !slices.Equal(deliveryNames(got), want) {
				b.t.Errorf("pages of %d with %+v: %v, want %v", limit, f, deliveryNames(got), want)
			}
		}
	}
}

func listPagesWhileChanging(b *bed) {
	b.publish(b.numbered("e", 40, "", "h")...)
	kept := map[string]bool{}
	for i := range 40 {
		kept[numberedName("e", i)] = i%4 != 0
	}
	seen := map[string]int{}
	page := store.Page{Limit: 5}
	for turn := 0; ; turn++ {
		got, err := b.s.List(b.ctx(), store.Filter{}, page)
		if err != nil {
			b.t.Fatalf("list: %v", err)
		}
		for _, d := range got.Deliveries {
			seen[d.ID.EventID]++
		}
		if got.Next == "" {
			break
		}
		page.Cursor = got.Next
		// New ones come, some go, some change.
		b.pass(time.Second)
		b.publish(b.event(numberedName("new", turn), "", "g"))
		id := store.DeliveryID{EventID: numberedName("e", turn*4), Handler: "h"}
		if err := b.s.CancelEvent(b.ctx(), id.EventID, b.now); turn < 10 && err != nil {
			b.t.Fatalf("cancel: %v", err)
		}
		other := store.DeliveryID{EventID: numberedName("e", turn*4+1), Handler: "h"}
		if err := b.s.BuryPending(b.ctx(), other, "by hand", b.now); turn < 10 && err != nil {
			b.t.Fatalf("bury: %v", err)
		}
	}
	for id, stays := range kept {
		if stays && seen[id] != 1 || seen[id] > 1 {
			b.t.Errorf("%s was listed %d times", id, seen[id])
		}
	}
}

func listedDelivery(b *bed) {
	e := b.event("e", "k", "h")
	e.Headers, e.CorrelationID, e.CausationID = []byte(`{"a":"b"}`), "correlation", "causation"
	b.publish(e)
	published := b.now
	d := b.delivery("e", "h")
	sequence := d.Event.Sequence
	if sequence <= 0 {
		b.t.Errorf("sequence %d", sequence)
	}
	e.Payload, e.Headers, e.Sequence = nil, nil, sequence
	want := store.Delivery{
		ID: store.DeliveryID{EventID: "e", Handler: "h"}, Status: store.StatusPending, DueAt: published, UpdatedAt: published,
	}
	check := func(what string) {
		b.t.Helper()
		d := b.delivery("e", "h")
		if !sameEvent(d.Event, e.Event) {
			b.t.Errorf("%s: the event is %+v, want %+v", what, d.Event, e.Event)
		}
		if problem := deliveryDifference(want, d); problem != "" {
			b.t.Errorf("%s: %s", what, problem)
		}
	}
	check("pending")
	b.pass(time.Second)
	c := b.one("w", "h", "e")
	want.Status, want.Owner = store.StatusRunning, "w"
	check("running") // A claim writes no delivery: UpdatedAt stays.
	b.pass(time.Second)
	b.settle("w", reschedule(c, b.now.Add(time.Minute)))
	want.Status, want.Owner, want.Attempts, want.Error = store.StatusPending, "", 1, "try again"
	want.DueAt, want.UpdatedAt = b.now.Add(time.Minute), b.now
	check("rescheduled")
	b.pass(time.Minute)
	c = b.one("w", "h", "e")
	b.settle("w", release(c))
	want.UpdatedAt = b.now
	check("released")
	b.one("w", "h", "e")
	b.pass(term + time.Millisecond)
	b.none("other", "g")
	want.Attempts, want.Lost, want.UpdatedAt = 2, 1, b.now
	check("taken over")
	b.settle("w2", bury(b.one("w2", "h", "e"), true))
	want.Status, want.Attempts, want.Error, want.HoldsKey = store.StatusDead, 3, "given up", true
	check("dead")
}

// deliveryDifference compares everything but the event.
func deliveryDifference(want, got store.Delivery) string {
	times := got.DueAt.Equal(want.DueAt) && got.UpdatedAt.Equal(want.UpdatedAt)
	want.Event, got.Event = store.Event{}, store.Event{}
	wantTimes, gotTimes := fmt.Sprint(want.DueAt, want.UpdatedAt), fmt.Sprint(got.DueAt, got.UpdatedAt)
	want.DueAt, want.UpdatedAt, got.DueAt, got.UpdatedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if !sameDelivery(want, got) || !times {
		return fmt.Sprintf("%+v at %s, want %+v at %s", got, gotTimes, want, wantTimes)
	}
	return ""
}

// sameDelivery compares all but the events and times.
func sameDelivery(a, b store.Delivery) bool {
	return a.ID == b.ID && a.Status == b.Status && a.Attempts == b.Attempts && a.Lost == b.Lost && a.Error == b.Error &&
		a.HoldsKey == b.HoldsKey && a.Owner == b.Owner
}

func getEvent(b *bed) {
	_, _, err := b.s.GetEvent(b.ctx(), "missing")
	b.wantError(err, store.ErrNotFound)
	_, _, err = b.s.GetEvent(b.ctx(), "")
	b.wantError(err)
	b.publish(b.event("e", "k", "h", "g", "f"))
	b.complete("w", b.one("w", "h", "e"))
	b.settle("w", bury(b.one("w", "g", "e"), false))
	event, deliveries, err := b.s.GetEvent(b.ctx(), "e")
	if err != nil || event.ID != "e" || string(event.Payload) != `{"id":"e"}` || event.Sequence <= 0 {
		b.t.Fatalf("got %+v, %v", event, err)
	}
	status := map[string]store.Status{}
	for _, d := range deliveries {
		status[d.ID.Handler] = d.Status
	}
	if len(deliveries) != 2 || status["g"] != store.StatusDead || status["f"] != store.StatusPending {
		b.t.Errorf("the deliveries are %v", status)
	}
}

func stats(b *bed) {
	empty, err := b.s.Stats(b.ctx(), b.now)
	if err != nil || empty.Pending != 0 || len(empty.Handlers) != 0 || !empty.OldestDueAt.IsZero() {
		b.t.Fatalf("an empty database: %+v, %v", empty, err)
	}
	oldest := b.now
	b.publish(b.numbered("z", 4, "", "z")...)
	b.pass(time.Minute)
	b.publish(b.numbered("a", 3, "k", "a")...)
	future := b.event("future", "", "future")
	future.DueAt = b.now.Add(time.Hour)
	b.publish(future)
	got := b.claim("w", plenty, "a", "z")
	if len(got) != 5 {
		b.t.Fatalf("claimed %v", names(got))
	}
	var list []store.Settlement
	for _, c := range got {
		if c.Lease.Handler == "z" {
			list = append(list, release(c))
		}
	}
	b.settle("w", append(list[:3], bury(b.find(got, list[3].Lease.EventID), false))...)
	all, err := b.s.Stats(b.ctx(), b.now)
	if err != nil {
		b.t.Fatalf("stats: %v", err)
	}
	if all.Pending != 6 || all.Running != 1 || all.Dead != 1 || all.Held != 0 || !all.OldestDueAt.Equal(oldest) {
		b.t.Errorf("stats are %+v", all)
	}
	want := []store.HandlerStats{
		{Handler: "a", Pending: 2, Running: 1, OldestDueAt: b.now},
		{Handler: "future", Pending: 1},
		{Handler: "z", Pending: 3, Dead: 1, OldestDueAt: oldest},
	}
	if len(all.Handlers) != len(want) {
		b.t.Fatalf("the handlers are %+v, want %+v", all.Handlers, want)
	}
	for i, h := range all.Handlers {
		if !h.OldestDueAt.Equal(want[i].OldestDueAt) {
			b.t.Errorf("the oldest due time of %s is %v, want %v", h.Handler, h.OldestDueAt, want[i].OldestDueAt)
		}
		h.OldestDueAt = want[i].OldestDueAt
		if h != want[i] {
			b.t.Errorf("%+v, want %+v", h, want[i])
		}
	}
}

func pageLimits(b *bed) {
	b.publish(b.event("e", "", "h"))
	for _, limit := range []int{0, -1, store.MaxPageSize + 1, 1_000_000_000} {
		_, err := b.s.List(b.ctx(), store.Filter{}, store.Page{Limit: limit})
		b.wantError(err, store.ErrInvalidArgument)
	}
}
