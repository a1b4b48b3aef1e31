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
	lists := [2][]string{}
	for i, w := range m.twins {
		lists[i] = m.describe(w)
	}
	if !slices.Equal(lists[0], lists[1]) {
		m.fail("the deliveries differ:\n%s", differences(m.twins[0].name, lists[0], m.twins[1].name, lists[1]))
	}
	m.compareStats()
	m.each("handlers", func(w *twin) string {
		entries, err := w.s().Handlers(m.t.Context())
		text := outcomeOf(err)
		for _, e := range entries {
			text += fmt.Sprintf(" %s%v%v paused=%v retired=%v at %d,", e.ID, e.Aliases, e.Types, e.Paused, e.Retired, millisOf(e.RecordedAt))
		}
		return text
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
		text := fmt.Sprintf("%s pending=%d running=%d dead=%d completed=%d held=%d oldest=%d", outcomeOf(err), stats.Pending, stats.Running,
			stats.Dead, stats.Completed, stats.Held, millisOf(stats.OldestDueAt))
		for _, h := range stats.Handlers {
			text += fmt.Sprintf(" [%s %d %d %d %d]", h.Handler, h.Pending, h.Running, h.Dead, millisOf(h.OldestDueAt))
		}
		return text
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

// describe lists what can be seen of all deliveries, in an order of its own.
// Sequences may have other gaps on another store, so it is their order in the
// key that is described.
func (m *model) describe(w *twin) []string {
	m.t.Helper()
	all := m.list(w)
	slices.SortFunc(all, func(a, b store.Delivery) int {
		return cmp.Or(strings.Compare(a.Event.Key, b.Event.Key), cmp.Compare(a.Event.Sequence, b.Event.Sequence), compareIDs(a.ID, b.ID))
	})
	var lines []string
	rank, last := 0, store.Event{}
	for _, d := range all {
		switch {
		case d.Event.Key != last.Key:
			rank = 0
		case d.Event.Sequence != last.Sequence:
			rank++
		}
		last = d.Event
		lines = append(lines, fmt.Sprintf("%s/%s %s attempts=%d lost=%d due=%d updated=%d error=%q held=%v owned=%v type=%s key=%q rank=%d created=%d",
			d.ID.EventID, d.ID.Handler, d.Status, d.Attempts, d.Lost, millisOf(d.DueAt), millisOf(d.UpdatedAt), d.Error, d.HoldsKey,
			d.Owner != "", d.Event.Type, d.Event.Key, rank, millisOf(d.Event.CreatedAt)))
		if holding, runs := w.held[d.ID]; runs != (d.Status == store.StatusRunning) || (runs && holding.owner != d.Owner) {
			m.fail("%s: %v is %s under %q; the worker that runs it is %q", w.name, d.ID, d.Status, d.Owner, holding.owner)
		}
	}
	slices.Sort(lines)
	return lines
}

// differences lists the lines that only one side has.
func differences(nameA string, a []string, nameB string, b []string) string {
	text := ""
	for _, line := range a {
		if !slices.Contains(b, line) {
			text += "only " + nameA + ": " + line + "\n"
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			text += "only " + nameB + ": " + line + "\n"
		}
	}
	return text
}
