package simulation_test

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// final compares the end with what happened: I1 and the rest of I3.
func (h *history) final(ctx context.Context, s store.Lister) {
	rows, err := listAll(ctx, s, store.Filter{})
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.report("the deliveries can't be listed at the end: %v", err)
		return
	}
	for _, row := range rows {
		name := deliveryName{row.ID.EventID, handlerName(row.ID.Handler)}
		if h.deliveries[name] == nil {
			h.report("I2: %s is %s, and has no committed event", name, row.Status)
		}
	}
	status := make(map[deliveryName]store.Status)
	for _, row := range rows {
		name := deliveryName{row.ID.EventID, handlerName(row.ID.Handler)}
		if status[name] != "" {
			h.report("B6: %s is there twice, as %s and as %s", name, status[name], row.Status)
		}
		status[name] = row.Status
	}
	for name, d := range h.deliveries {
		switch s := status[name]; {
		case d.removed:
		case s == store.StatusCompleted && d.completed:
		case s == store.StatusDead && d.dead:
		case s == "":
			h.report("I1: %s is lost", name)
		default:
			h.report("I1: %s is %s in the end (completed: %v, dead: %v, claims over: %v)",
				name, s, d.completed, d.dead, d.claim == nil || d.claim.over)
		}
		if want := d.handler.transactional && d.completed; want != (d.effects == 1) {
			h.report("I3: %s had its effect %d times, and completed is %v", name, d.effects, d.completed)
		}
	}
	for hk, k := range h.keys {
		if len(k.open) > 0 {
			h.report("I6: %d executions of key %q of %s never ended", len(k.open), hk.key, hk.handler)
		}
	}
}

// bound is by when nothing may be left to do, if the faults stop at calm: the
// longest that a hung call or a dead owner can keep anything back is a lease,
// then a poll finds what is left, and the handlers work it off one after the
// other.
func (h *history) bound(calm time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.plan
	busy := time.Second / 5 // for what the last steps publish
	for _, d := range h.deliveries {
		if d.unfinished() {
			busy += 30 * time.Millisecond
		}
		if p.poisonous(d.name) && !d.completed {
			busy += time.Duration(p.attempts) * p.retryCap
		}
	}
	return later(calm.Add(p.lease), h.probes).Add(p.poll).Add(busy)
}

// unfinished names what is not done, a few of them.
func (h *history) unfinished() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name, d := range h.deliveries {
		if d.unfinished() && len(names) < 5 {
			names = append(names, name.String())
		}
	}
	return names
}

// found returns the violations.
func (h *history) found() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.violations...)
}

func listAll(ctx context.Context, s store.Lister, f store.Filter) ([]store.Delivery, error) {
	var rows []store.Delivery
	for p := (store.Page{Limit: store.MaxPageSize}); ; {
		page, err := s.List(ctx, f, p)
		if err != nil {
			return nil, err
		}
		rows = append(rows, page.Deliveries...)
		if page.Next == "" {
			return rows, nil
		}
		p.Cursor = page.Next
	}
}
