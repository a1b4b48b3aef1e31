package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// play does one random operation on both stores.
func (m *model) play() {
	m.t.Helper()
	ops := []struct {
		weight int
		op     func()
	}{
		{16, m.publish},
		{1, m.burst},
		{20, func() { m.claim(m.groups[m.random.IntN(len(m.groups))]) }},
		{24, m.settle},
		{4, m.completeInTx},
		{6, m.settleStale},
		{3, m.crash},
		{2, m.relinquish},
		{6, func() { m.jump(time.Duration(m.random.IntN(120_000)) * time.Millisecond) }},
		{2, func() { m.jump(-time.Duration(m.random.IntN(5_000)) * time.Millisecond) }},
		{1, func() { m.jump(time.Duration(m.random.IntN(48)) * time.Hour) }},
		{6, m.requeue},
		{2, m.requeueWhere},
		{5, m.operate},
		{3, m.cancelEvent},
		{1, m.drop},
		{3, m.pause},
		{4, m.purge},
		{1, m.catalogue},
	}
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	pick := m.random.IntN(total)
	for _, o := range ops {
		if pick -= o.weight; pick < 0 {
			o.op()
			return
		}
	}
}

// newEvents makes n events with new ids.
func (m *model) newEvents(n int, key func() string) []store.NewEvent {
	var events []store.NewEvent
	for range n {
		id := numberedName("e", len(m.ids))
		m.ids = append(m.ids, id)
		e := newEvent(id, key(), m.now)
		e.Type = numberedName("type", m.random.IntN(3))
		e.Payload = fmt.Appendf(nil, `{"n":%d}`, m.random.Int64())
		if m.random.IntN(3) == 0 {
			e.Headers = []byte(`{"a":"b"}`)
		}
		if m.random.IntN(4) == 0 {
			e.DueAt = m.now.Add(time.Duration(m.random.IntN(300_000)) * time.Millisecond)
		}
		e.Handlers = m.someHandlers(true)
		e.Fresh = m.random.IntN(3) > 0
		events = append(events, e)
	}
	return events
}

// someHandlers chooses handlers for a publish. The old id of the renamed one is
// published only with new events, as two deliveries of one event in one set
// leave open which comes first.
func (m *model) someHandlers(fresh bool) []store.Handler {
	var handlers []store.Handler
	for _, id := range []string{"h1", "h2", "later"} {
		if m.random.IntN(3) > 0 {
			handlers = append(handlers, store.Handler{ID: id})
		}
	}
	switch {
	case m.random.IntN(2) == 0:
		handlers = append(handlers, store.Handler{ID: "new3", Aliases: []string{"old3"}})
	case fresh && m.random.IntN(2) == 0:
		handlers = append(handlers, store.Handler{ID: "old3"})
	default:
	}
	return handlers
}

func (m *model) publish() {
	events := m.newEvents(1+m.random.IntN(4), func() string { return m.keys[m.random.IntN(len(m.keys))] })
	for range m.random.IntN(2) {
		// A known id again, with other handlers and another key.
		e := newEvent(m.ids[m.random.IntN(len(m.ids))], m.keys[m.random.IntN(len(m.keys))], m.now)
		e.Handlers = m.someHandlers(false)
		events = append(events, e)
	}
	m.append(events, m.random.IntN(12) == 0)
}

func (m *model) append(events []store.NewEvent, undo bool) {
	m.t.Helper()
	m.note("publish %d events from %s, undo %v", len(events), events[0].ID, undo)
	first := len(events)
	if m.random.IntN(2) == 0 {
		first = m.random.IntN(len(events)) // In two calls.
	}
	m.each("publish", func(w *twin) string {
		var all []store.Appended
		s := w.stores[len(events)%2]
		err := s.Transact(m.t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			for _, part := range [][]store.NewEvent{events[:first], events[first:]} {
				got, err := s.Append(ctx, tx, part, m.now)
				if err != nil {
					return err
				}
				all = append(all, got...)
			}
			if undo {
				return errUndo
			}
			return nil
		})
		text := fmt.Sprintf("%v", all)
		if undo && errors.Is(err, errUndo) {
			return "undone " + text
		}
		return outcomeOf(err) + text
	})
}

// burst publishes enough of one key to be parked.
func (m *model) burst() {
	m.append(m.newEvents(36, func() string { return "hot" }), false)
}

// claim lets all workers of a group claim one after the other, and compares
// what they got together.
func (m *model) claim(g *group) {
	m.t.Helper()
	order := m.random.Perm(len(g.workers))
	m.note("claim by %v", g.workers)
	before := len(m.running())
	m.each("claim", func(w *twin) string {
		var lines []string
		for _, i := range order {
			s := w.stores[i%len(w.stores)]
			r := store.ClaimRequest{Owner: g.owner(i), Limit: plenty, Now: m.now, Lease: modelLease}
			for _, h := range g.handlers {
				r.Handlers = append(r.Handlers, store.HandlerLimit{Handler: h, Limit: plenty})
			}
			result, err := s.Claim(m.t.Context(), r)
			if err != nil {
				m.fail("%s: claim for %s: %v", w.name, r.Owner, err)
			}
			if result.More {
				m.fail("%s: a claim for %s without a limit left work behind", w.name, r.Owner)
			}
			for _, c := range result.Deliveries {
				id := store.DeliveryID{EventID: c.Event.ID, Handler: c.Lease.Handler}
				if _, runs := w.held[id]; runs {
					m.fail("%s: %v was claimed by %s while it ran", w.name, id, r.Owner)
				}
				w.held[id] = holding{c, r.Owner, s}
				lines = append(lines, fmt.Sprintf("%s/%s attempt=%d lost=%d alone=%v due=%d type=%s key=%q payload=%s headers=%s",
					id.EventID, id.Handler, c.Attempt, c.Lost, c.Alone, millisOf(c.DueAt), c.Event.Type, c.Event.Key, c.Event.Payload, c.Event.Headers))
			}
		}
		slices.Sort(lines)
		return fmt.Sprintf("%q", lines)
	})
	m.claimed += len(m.running()) - before
}

// settleAll settles the deliveries on both stores, in one call for each owner,
// and wants all of it to be applied.
func (m *model) settleAll(ids []store.DeliveryID, choose func(id store.DeliveryID) store.Settlement) {
	m.t.Helper()
	chosen := make(map[store.DeliveryID]store.Settlement)
	for _, id := range ids {
		chosen[id] = choose(id)
	}
	for _, w := range m.twins {
		lists := make(map[string][]store.Settlement)
		on := make(map[string]store.Store)
		for _, id := range ids {
			h := w.held[id]
			settlement := chosen[id]
			settlement.Lease = h.claimed.Lease
			lists[h.owner] = append(lists[h.owner], settlement)
			on[h.owner] = h.on
		}
		for owner, list := range lists {
			ok, err := on[owner].Settle(m.t.Context(), owner, list, m.now)
			if err != nil {
				m.fail("%s: settle for %s: %v", w.name, owner, err)
			}
			for i := range ok {
				if !ok[i] {
					m.fail("%s: %s of %s/%s for %s was refused", w.name, list[i].Action, list[i].Lease.EventID, list[i].Lease.Handler, owner)
				}
			}
		}
	}
	for _, id := range ids {
		m.end(id)
	}
}

func (m *model) settle() {
	ids := m.some(m.running(), 1+m.random.IntN(6))
	m.note("settle %v", ids)
	m.settleAll(ids, func(id store.DeliveryID) store.Settlement {
		s := m.settlement()
		m.note("  %s %v", s.Action, id)
		return s
	})
}

// settlement chooses an end.
func (m *model) settlement() store.Settlement {
	later := m.now.Add(time.Duration(m.random.IntN(60_000)) * time.Millisecond)
	switch m.random.IntN(10) {
	case 0, 1:
		return store.Settlement{Action: store.Reschedule, DueAt: later, Error: numberedName("failure", m.step)}
	case 2:
		return store.Settlement{Action: store.Release, Alone: m.random.IntN(3) == 0}
	case 3:
		return store.Settlement{Action: store.Release, DueAt: later}
	case 4, 5:
		return store.Settlement{Action: store.Bury, Error: numberedName("death", m.step), Hold: m.random.IntN(2) == 0}
	default:
		return store.Settlement{Action: store.Complete}
	}
}

// completeInTx completes one in a transaction that also publishes, or undoes
// both.
func (m *model) completeInTx() {
	ids := m.some(m.running(), 1)
	if len(ids) == 0 {
		return
	}
	undo := m.random.IntN(3) == 0
	events := m.newEvents(1, func() string { return m.keys[m.random.IntN(len(m.keys))] })
	m.note("complete %v in a transaction, undo %v", ids[0], undo)
	m.each("complete in a transaction", func(w *twin) string {
		h := w.held[ids[0]]
		err := h.on.Transact(m.t.Context(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
			if _, err := h.on.Append(ctx, tx, events, m.now); err != nil {
				return err
			}
			if err := h.on.CompleteTx(ctx, tx, h.owner, h.claimed.Lease, m.now); err != nil {
				return err
			}
			if undo {
				return errUndo
			}
			return nil
		})
		if undo && errors.Is(err, errUndo) {
			return "undone"
		}
		return outcomeOf(err)
	})
	if !undo {
		m.end(ids[0])
	}
}

// settleStale uses a lease that has ended. Nothing must come of it.
func (m *model) settleStale() {
	if len(m.stale) == 0 {
		return
	}
	id := m.stale[m.random.IntN(len(m.stale))]
	settlement := m.settlement()
	m.note("stale %s of %v", settlement.Action, id)
	for _, w := range m.twins {
		h := w.stale[id]
		settlement.Lease = h.claimed.Lease
		ok, err := h.on.Settle(m.t.Context(), h.owner, []store.Settlement{settlement}, m.now)
		if err != nil || ok[0] {
			m.fail("%s: a stale %s of %v for %s: %v, %v", w.name, settlement.Action, id, h.owner, ok, err)
		}
		held, err := h.on.Extend(m.t.Context(), h.owner, []store.Lease{h.claimed.Lease}, m.now, modelLease)
		if err != nil || held[0] {
			m.fail("%s: a stale lease of %v for %s was extended: %v, %v", w.name, id, h.owner, held, err)
		}
	}
}

// jump moves the clock, and then renews the leases of everything that runs: a
// lease that expired and that nobody took over still can be.
func (m *model) jump(d time.Duration) {
	m.t.Helper()
	m.now = m.now.Add(d)
	m.note("the clock moves by %v", d)
	m.extend(nil)
}

// extend renews what runs, but not for the workers of the group.
func (m *model) extend(except *group) {
	m.t.Helper()
	for _, w := range m.twins {
		leases := make(map[string][]store.Lease)
		on := make(map[string]store.Store)
		for id, h := range w.held {
			if except != nil && m.groupOf(id.Handler) == except {
				continue
			}
			leases[h.owner] = append(leases[h.owner], h.claimed.Lease)
			on[h.owner] = h.on
		}
		for owner, list := range leases {
			held, err := on[owner].Extend(m.t.Context(), owner, list, m.now, modelLease)
			if err != nil || slices.Contains(held, false) {
				m.fail("%s: extend for %s: %v, %v", w.name, owner, held, err)
			}
		}
	}
}

// crash lets the workers of a group die. Their leases end; some of their last
// settlements still arrive; then another worker takes over.
func (m *model) crash() {
	g := m.groups[m.random.IntN(len(m.groups))]
	m.now = m.now.Add(3 * modelLease)
	m.note("the workers %v die", g.workers)
	m.extend(g)
	var lost []store.DeliveryID
	for _, id := range m.running() {
		if m.groupOf(id.Handler) == g {
			lost = append(lost, id)
		}
	}
	if len(lost) > 0 && m.random.IntN(2) == 0 {
		late := m.some(lost, 2)
		m.note("a late settlement of %v", late)
		m.settleAll(late, func(store.DeliveryID) store.Settlement { return m.settlement() })
		lost = slices.DeleteFunc(lost, func(id store.DeliveryID) bool { return slices.Contains(late, id) })
	}
	g.life++
	m.each("take over", func(w *twin) string {
		s := w.stores[m.step%2]
		result, err := s.Claim(m.t.Context(), request("reaper", m.now, plenty, "nobody"))
		return fmt.Sprintf("%s%v", outcomeOf(err), names(result.Deliveries))
	})
	for _, id := range lost {
		m.end(id)
	}
	// Idle workers of other groups that were taken over are as they were.
}

func (m *model) relinquish() {
	g := m.groups[m.random.IntN(len(m.groups))]
	m.note("the workers %v stop", g.workers)
	m.each("relinquish", func(w *twin) string {
		var outcomes []string
		for i := range g.workers {
			outcomes = append(outcomes, outcomeOf(w.stores[i%len(w.stores)].Relinquish(m.t.Context(), g.owner(i), m.now)))
		}
		return strings.Join(outcomes, ", ")
	})
	for _, id := range m.running() {
		if m.groupOf(id.Handler) == g {
			m.end(id)
		}
	}
}

// any returns deliveries with the status, or of every status.
func (m *model) any(status store.Status) []store.DeliveryID {
	var ids []store.DeliveryID
	for _, d := range m.list(m.twins[0]) {
		if (status == "" && d.Status != store.StatusCompleted) || d.Status == status {
			ids = append(ids, d.ID)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

func (m *model) requeue() {
	ids := m.some(m.any(store.StatusDead), 1+m.random.IntN(4))
	if m.random.IntN(6) == 0 {
		ids = append(ids, m.some(m.any(""), 1)...)
	}
	if m.random.IntN(10) == 0 {
		ids = append(ids, store.DeliveryID{EventID: "missing", Handler: "h1"})
	}
	if len(ids) == 0 {
		return
	}
	m.note("requeue %v", ids)
	m.each("requeue", func(w *twin) string { return refusal(w.s().Requeue(m.t.Context(), ids, m.now)) })
}

// refusal is outcomeOf, with running and the wrong state as one.
func refusal(err error) string {
	if isOneOf(err, store.ErrRunning, store.ErrState, store.ErrNotFound) && errorProblem(err) == "" {
		return "refused"
	}
	return outcomeOf(err)
}

func (m *model) requeueWhere() {
	filters := []store.Filter{{}, {Handler: "h1"}, {Key: "k1"}, {HoldsKey: true}, {EventType: "type-1"}, {To: m.now}, {From: m.now.Add(-time.Minute)}}
	f := filters[m.random.IntN(len(filters))]
	m.note("requeue where %+v", f)
	m.each("requeue where", func(w *twin) string {
		n, err := w.s().RequeueWhere(m.t.Context(), f, plenty, m.now)
		return fmt.Sprintf("%d %s", n, outcomeOf(err))
	})
}

// operate does something by hand to a delivery in any state.
func (m *model) operate() {
	ids := m.some(m.any(""), 1)
	if len(ids) == 0 {
		return
	}
	id, kind := ids[0], m.random.IntN(3)
	later := m.now.Add(time.Duration(m.random.IntN(300_000)-60_000) * time.Millisecond)
	m.note("operate %d on %v", kind, id)
	m.each("operate", func(w *twin) string {
		switch kind {
		case 0:
			return outcomeOf(w.s().BuryPending(m.t.Context(), id, "by hand", m.now))
		case 1:
			return outcomeOf(w.s().ReschedulePending(m.t.Context(), id, later, m.now))
		default:
			return refusal(w.s().Skip(m.t.Context(), id, m.now))
		}
	})
}

func (m *model) cancelEvent() {
	ids := m.some(m.any(store.StatusPending), 1)
	if len(ids) == 0 {
		return
	}
	m.note("cancel %s", ids[0].EventID)
	m.each("cancel event", func(w *twin) string { return outcomeOf(w.s().CancelEvent(m.t.Context(), ids[0].EventID, m.now)) })
}

func (m *model) drop() {
	handler := []string{"later", "h1", "old3"}[m.random.IntN(3)]
	m.note("drop %s", handler)
	m.each("drop", func(w *twin) string {
		n, err := w.s().DropPending(m.t.Context(), handler, plenty, m.now)
		return fmt.Sprintf("%d %s", n, outcomeOf(err))
	})
}

func (m *model) pause() {
	handler := []string{"h1", "h2", "missing"}[m.random.IntN(3)]
	paused := m.random.IntN(3) == 0
	m.note("pause %s %v", handler, paused)
	m.each("pause", func(w *twin) string { return outcomeOf(w.s().PauseHandler(m.t.Context(), handler, paused, m.now)) })
}

// purge runs batches to the end; how much one batch takes is the store's affair.
func (m *model) purge() {
	r := store.PurgeRequest{Limit: 1 + m.random.IntN(30)}
	cutoff := m.now.Add(time.Duration(m.random.IntN(3*3600)-3*3600) * time.Second)
	if m.random.IntN(3) > 0 {
		r.CompletedBefore = cutoff
	}
	if m.random.IntN(2) == 0 {
		r.DeadBefore = cutoff.Add(time.Minute)
	}
	m.note("purge %+v", r)
	m.each("purge", func(w *twin) string {
		var total store.PurgeResult
		for range 10_000 {
			got, err := w.s().Purge(m.t.Context(), r)
			if err != nil {
				return outcomeOf(err)
			}
			total.Events += got.Events
			total.Deliveries += got.Deliveries
			total.History += got.History
			if !got.More {
				return fmt.Sprintf("%d events, %d deliveries, %d of the history", total.Events, total.Deliveries, total.History)
			}
		}
		return "without end"
	})
}

func (m *model) catalogue() {
	retire := m.random.IntN(2) == 0
	m.note("catalogue, retire %v", retire)
	m.each("catalogue", func(w *twin) string {
		if retire {
			return outcomeOf(w.s().RetireHandler(m.t.Context(), "h2", m.now)) + outcomeOf(w.s().RetireHandler(m.t.Context(), "missing", m.now))
		}
		return outcomeOf(w.s().RecordHandlers(m.t.Context(), []store.HandlerEntry{
			entry("h2", []string{"type-1"}), entry("new3", []string{"type-*"}, "old3"),
		}, m.now))
	})
}
