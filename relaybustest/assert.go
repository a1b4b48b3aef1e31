package relaybustest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/relaybus-go/relaybus"
)

// AssertPublished fails the test unless exactly n events of the type have been
// committed.
func (b *Bus) AssertPublished(tb testing.TB, eventType Named, n int) {
	tb.Helper()
	compareEvents(tb, "published", b.Published(), eventType, n)
}

// AssertStaged fails the test unless exactly n events of the type have been
// published in the open transaction of the context: see [Bus.Staged].
func (b *Bus) AssertStaged(ctx context.Context, tb testing.TB, eventType Named, n int) {
	tb.Helper()
	compareEvents(tb, "staged", b.Staged(ctx), eventType, n)
}

func compareEvents(tb testing.TB, what string, events []*relaybus.RawEvent, eventType Named, n int) {
	tb.Helper()
	if got := len(ofType(events, eventType)); got != n {
		tb.Errorf("%s events of type %s: got %d, want %d\nall %s events:\n%s",
			what, eventType.Name(), got, n, what, describeEvents(events))
	}
}

// AssertHandled fails the test unless the handler has handled exactly n events
// with success. A handler that neither the bus nor the store knows fails it,
// too.
func (b *Bus) AssertHandled(tb testing.TB, handler string, n int) {
	tb.Helper()
	ids := b.known(tb, handler)
	if len(ids) == 0 {
		return
	}
	handled := b.Handled(handler)
	if len(handled) == n {
		return
	}
	list := "  none"
	if len(handled) > 0 {
		list = "  " + strings.Join(handled, "\n  ")
	}
	left := b.deliveries(func(d relaybus.Delivery) bool {
		return d.Status != relaybus.StatusCompleted && slices.Contains(ids, d.ID.Handler)
	})
	tb.Errorf("events handled by %s: got %d, want %d\nhandled:\n%s\nits other deliveries:\n%s",
		handler, len(handled), n, list, describeDeliveries(left))
}

// AssertDead fails the test unless exactly n deliveries of the handler are
// dead. A handler that neither the bus nor the store knows fails it, too.
func (b *Bus) AssertDead(tb testing.TB, handler string, n int) {
	tb.Helper()
	ids := b.known(tb, handler)
	if len(ids) == 0 {
		return
	}
	own := func(d relaybus.Delivery) bool { return slices.Contains(ids, d.ID.Handler) }
	got := 0
	for _, d := range b.Dead() {
		if own(d) {
			got++
		}
	}
	if got != n {
		tb.Errorf("dead deliveries of %s: got %d, want %d\nits deliveries:\n%s",
			handler, got, n, describeDeliveries(b.deliveries(own)))
	}
}

// AssertNoDead fails the test if any delivery is dead.
func (b *Bus) AssertNoDead(tb testing.TB) {
	tb.Helper()
	if dead := b.Dead(); len(dead) > 0 {
		tb.Errorf("dead deliveries: got %d, want none\n%s", len(dead), describeDeliveries(dead))
	}
}

// AssertDrained fails the test if a delivery runs or is due, also one that
// can't run because its key is held or its handler paused. What is due later is
// no failure, and neither is what waits behind it in the order of its key: see
// [Bus.Pending].
func (b *Bus) AssertDrained(tb testing.TB) {
	tb.Helper()
	now := b.clock.Now()
	names := make(map[string]string) // of handlers, by their aliases
	for _, h := range b.Handlers() {
		for _, alias := range h.Aliases {
			names[alias] = h.ID
		}
	}
	// waiting has the sequences from which on a key waits for something later.
	type handlerKey struct{ handler, key string }
	waiting := make(map[handlerKey]int64)
	keyOf := func(d relaybus.Delivery) handlerKey {
		return handlerKey{cmp.Or(names[d.ID.Handler], d.ID.Handler), d.Event.Key}
	}
	left := b.deliveries(func(d relaybus.Delivery) bool {
		return d.Status == relaybus.StatusRunning || d.Status == relaybus.StatusPending
	})
	for _, d := range left { // in the order of their sequences
		if _, waits := waiting[keyOf(d)]; d.Event.Key != "" && d.DueAt.After(now) && !waits {
			waiting[keyOf(d)] = d.Event.Sequence
		}
	}
	left = slices.DeleteFunc(left, func(d relaybus.Delivery) bool {
		from, waits := waiting[keyOf(d)]
		return d.Status == relaybus.StatusPending && (d.DueAt.After(now) || (waits && d.Event.Sequence > from))
	})
	if len(left) > 0 {
		tb.Errorf("deliveries that are due or run at %s: got %d, want none\n%s",
			formatTime(now), len(left), describeDeliveries(left))
	}
}

// known returns all ids of a handler, and fails the test for one that does not
// exist: a misspelled id would let an assertion of 0 pass.
func (b *Bus) known(tb testing.TB, handler string) []string {
	tb.Helper()
	var all []string
	for _, h := range b.Handlers() {
		if h.ID == handler {
			return append([]string{h.ID}, h.Aliases...)
		}
		all = append(all, h.ID)
	}
	recorded, err := b.Store.Handlers(context.WithoutCancel(b.tb.Context()))
	if err != nil {
		tb.Errorf("relaybustest: %v", err)
		return nil
	}
	for _, h := range recorded {
		if h.ID == handler {
			return append([]string{h.ID}, h.Aliases...)
		}
		all = append(all, h.ID)
	}
	slices.Sort(all)
	tb.Errorf("there is no handler %s; the handlers are: %s", handler, strings.Join(slices.Compact(all), ", "))
	return nil
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// longestPayload is how many bytes of a payload a failure shows.
const longestPayload = 200

func describeEvents(events []*relaybus.RawEvent) string {
	return table(len(events), func(i int) []string {
		e := events[i]
		payload := string(e.Payload)
		if len(payload) > longestPayload {
			payload = strings.ToValidUTF8(payload[:longestPayload], "") + "…"
		}
		return []string{e.ID, e.Type, orDash("key", e.Key), payload}
	})
}

func describeDeliveries(list []relaybus.Delivery) string {
	return table(len(list), func(i int) []string {
		d := list[i]
		row := []string{
			d.ID.Handler, d.ID.EventID, d.Event.Type, orDash("key", d.Event.Key), string(d.Status),
			fmt.Sprintf("attempts %d", d.Attempts), "due " + formatTime(d.DueAt), "",
		}
		if d.HoldsKey {
			row[4] += ", holds its key"
		}
		if d.Error != "" {
			row[7] = fmt.Sprintf("error %q", d.Error)
		}
		return row
	})
}

func formatTime(t time.Time) string { return t.UTC().Format(timeFormat) }

func orDash(name, value string) string {
	if value == "" {
		return "-"
	}
	return name + " " + value
}

// table lines up n rows.
func table(n int, row func(i int) []string) string {
	if n == 0 {
		return "  none"
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for i := range n {
		_, _ = fmt.Fprintln(w, "  "+strings.Join(row(i), "\t"))
	}
	_ = w.Flush() // a strings.Builder takes everything
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
