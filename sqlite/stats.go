package sqlite

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Stats counts deliveries; see [store.Lister]. It reads all of them.
func (s *Store) Stats(ctx context.Context, now time.Time) (store.Stats, error) {
	var total store.Stats
	err := s.read(ctx, "count deliveries", func(ctx context.Context, x *session) error {
		c := &counting{session: x, now: now.UnixMilli(), by: make(map[int64]*store.HandlerStats)}
		for _, step := range []func(context.Context) error{c.count, c.run, c.oldest, c.history} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		total = c.total
		for ref, h := range c.by {
			id, err := x.handlerID(ctx, ref)
			if err != nil {
				return err
			}
			h.Handler = id
			total.Handlers = append(total.Handlers, *h)
		}
		slices.SortFunc(total.Handlers, func(a, b store.HandlerStats) int { return strings.Compare(a.Handler, b.Handler) })
		return nil
	})
	if err != nil {
		return store.Stats{}, err
	}
	return total, nil
}

// counting is one call of Stats.
type counting struct {
	*session
	now   int64
	total store.Stats
	by    map[int64]*store.HandlerStats
	runs  running
	// parked says that some are.
	parked bool
}

func (c *counting) count(ctx context.Context) error {
	return c.rows(ctx, c.s.sql.countDeliveries, func(scan func(...any) error) (bool, error) {
		var ref, n int64
		var state int
		if err := scan(&ref, &state, &n); err != nil {
			return false, err
		}
		h := c.by[ref]
		if h == nil {
			h = &store.HandlerStats{}
			c.by[ref] = h
		}
		c.parked = c.parked || state == stateParked
		if state < stateHeld {
			h.Pending += n
			c.total.Pending += n
			return true, nil
		}
		h.Dead += n
		c.total.Dead += n
		if state == stateHeld {
			c.total.Held += n
		}
		return true, nil
	})
}

// run moves what runs from pending to running.
func (c *counting) run(ctx context.Context) error {
	runs, err := c.running(ctx)
	if err != nil {
		return err
	}
	c.runs = runs
	for d := range runs {
		var gen int64
		found, err := c.row(ctx, c.s.sql.generation, []any{&gen}, d.event, d.handler)
		if err != nil {
			return err
		}
		h := c.by[d.handler]
		if !found || h == nil || !runs.has(d, gen) {
			delete(runs, d)
			continue
		}
		h.Pending--
		h.Running++
		c.total.Pending--
		c.total.Running++
	}
	return nil
}

func (c *counting) oldest(ctx context.Context) error {
	for ref, h := range c.by {
		if err := c.oldestReady(ctx, ref, h); err != nil {
			return err
		}
	}
	if err := c.oldestParked(ctx); err != nil {
		return err
	}
	for _, h := range c.by {
		if !h.OldestDueAt.IsZero() {
			earlier(&c.total.OldestDueAt, h.OldestDueAt)
		}
	}
	return nil
}

// oldestParked looks at the parked ones, none of which runs. No index has them
// by due time, so this reads everything, if there are any.
func (c *counting) oldestParked(ctx context.Context) error {
	if !c.parked {
		return nil
	}
	return c.rows(ctx, c.s.sql.oldestParked, func(scan func(...any) error) (bool, error) {
		var ref, due int64
		if err := scan(&ref, &due); err != nil {
			return false, err
		}
		if h := c.by[ref]; h != nil {
			earlier(&h.OldestDueAt, instant(due))
		}
		return true, nil
	}, c.now)
}

// oldestReady hops over the lanes of a handler: the first of each that does not
// run counts, and a lane whose first is no older than what was found is left out.
func (c *counting) oldestReady(ctx context.Context, ref int64, h *store.HandlerStats) error {
	var lanes []firstReady
	err := c.lanesWithWork(ctx, ref, func(f firstReady) bool {
		lanes = append(lanes, f)
		return true
	})
	if err != nil {
		return err
	}
	for _, f := range lanes {
		if f.due > c.now || (!h.OldestDueAt.IsZero() && f.due >= h.OldestDueAt.UnixMilli()) {
			continue
		}
		err := c.rows(ctx, c.s.sql.oldestReady, func(scan func(...any) error) (bool, error) {
			d := deliveryKey{handler: ref}
			var due int64
			if err := scan(&d.event, &due); err != nil {
				return false, err
			}
			if _, runs := c.runs[d]; runs {
				return true, nil
			}
			earlier(&h.OldestDueAt, instant(due))
			return false, nil
		}, ref, f.lane, c.now)
		if err != nil {
			return err
		}
	}
	return nil
}

func earlier(t *time.Time, at time.Time) {
	if t.IsZero() || at.Before(*t) {
		*t = at
	}
}

func (c *counting) history(ctx context.Context) error {
	_, err := c.row(ctx, c.s.sql.countHistory, []any{&c.total.Completed})
	return err
}
