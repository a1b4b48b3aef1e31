package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// compare wants both stores to show the same.
func (m *model) compare() {
	m.t.Helper()
	first, second := m.views(m.twins[0]), m.views(m.twins[1])
	if !slices.Equal(first, second) {
		m.fail("the deliveries differ:\n%s", differences(m.twins[0].name, first, m.twins[1].name, second))
	}
	m.compareStats()
	m.each("handlers", func(w *twin) string {
		entries, err := w.s().Handlers(m.t.Context())
		var text strings.Builder
		text.WriteString(outcomeOf(err))
		for _, e := range entries {
			fmt.Fprintf(&text, " %s%v%v paused=%v retired=%v at %d,", e.ID, e.Aliases, e.Types, e.Paused, e.Retired, millisOf(e.RecordedAt))
		}
		return text.String()
	})
	ids := m.ids
	if m.step%16 != 0 && len(ids) > 3 {
		ids = []string{ids[m.random.IntN(len(ids))], ids[m.random.IntN(len(ids))], ids[len(ids)-1]}
	}
	for _, id := range ids {
		m.each("event "+id, func(w *twin) string {
			e, deliveries, err := w.s().GetEvent(m.t.Context(), id)
			if err != nil {
				return outcomeOf(err)
			}
			names := deliveryNames(deliveries)
			slices.Sort(names)
			return fmt.Sprintf("%s %s %q %s %s %d %v", e.Type, e.Source, e.Key, e.Payload, e.Headers, millisOf(e.CreatedAt), names)
		})
	}
}

func (m *model) compareStats() {
	m.t.Helper()
	m.each("stats", func(w *twin) string {
		stats, err := w.s().Stats(m.t.Context(), m.now)
		var text strings.Builder
		fmt.Fprintf(&text, "%s pending=%d running=%d dead=%d completed=%d held=%d oldest=%d", outcomeOf(err), stats.Pending, stats.Running,
			stats.Dead, stats.Completed, stats.Held, millisOf(stats.OldestDueAt))
		for _, h := range stats.Handlers {
			fmt.Fprintf(&text, " [%s %d %d %d %d]", h.Handler, h.Pending, h.Running, h.Dead, millisOf(h.OldestDueAt))
		}
		return text.String()
	})
}

func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// list returns all deliveries, by pages of a random size.
func (m *model) list(w *twin) []store.Delivery {
	m.t.Helper()
	list, err := listAll(m.t.Context(), w.s(), store.Filter{}, 7+m.step%200)
	if err != nil {
		m.fail("%s: list: %v", w.name, err)
	}
	return list
}

// view is what can be seen of a delivery, and does not depend on the store.
type view struct {
	id             store.DeliveryID
	status         store.Status
	attempts, lost int
	due, updated   int64
	failure        string
	held, owned    bool
	eventType, key string
	// rank is the place among the sequences of the key: the sequences themselves
	// may have other gaps on another store.
	rank    int
	created int64
}

// views lists what can be seen of all deliveries, in an order of its own.
func (m *model) views(w *twin) []view {
	m.t.Helper()
	all := m.list(w)
	slices.SortFunc(all, func(a, b store.Delivery) int {
		return cmp.Or(strings.Compare(a.Event.Key, b.Event.Key), cmp.Compare(a.Event.Sequence, b.Event.Sequence), compareIDs(a.ID, b.ID))
	})
	list := make([]view, len(all))
	rank, last := 0, store.Event{}
	for i, d := range all {
		switch {
		case d.Event.Key != last.Key:
			rank = 0
		case d.Event.Sequence != last.Sequence:
			rank++
		}
		last = d.Event
		list[i] = view{
			d.ID, d.Status, d.Attempts, d.Lost, millisOf(d.DueAt), millisOf(d.UpdatedAt), d.Error, d.HoldsKey, d.Owner != "",
			d.Event.Type, d.Event.Key, rank, millisOf(d.Event.CreatedAt),
		}
		if holding, runs := w.held[d.ID]; runs != (d.Status == store.StatusRunning) || (runs && holding.owner != d.Owner) {
			m.fail("%s: %v is %s under %q; the worker that runs it is %q", w.name, d.ID, d.Status, d.Owner, holding.owner)
		}
	}
	return list
}

// differences lists what only one side shows.
func differences(nameA string, a []view, nameB string, b []view) string {
	var text strings.Builder
	for _, v := range a {
		if !slices.Contains(b, v) {
			fmt.Fprintf(&text, "only %s: %+v\n", nameA, v)
		}
	}
	for _, v := range b {
		if !slices.Contains(a, v) {
			fmt.Fprintf(&text, "only %s: %+v\n", nameB, v)
		}
	}
	return text.String()
}
