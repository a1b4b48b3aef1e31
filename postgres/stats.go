package postgres

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
	err := s.report(ctx, "count deliveries", func(ctx context.Context, x *session) error {
		c := &counting{session: x, now: now.UnixMilli(), by: make(map[int32]*store.HandlerStats)}
		for _, step := range []func(context.Context) error{c.count, c.run, c.oldest, c.history, c.name} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		total = c.total
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
	by    map[int32]*store.HandlerStats
	runs  owners
	// parked says that some are.
	parked bool
}

func (c *counting) count(ctx context.Context) error {
	return c.rows(ctx, c.s.sql.countDeliveries, func(scan func(...any) error) (bool, error) {
		var ref int32
		var n int64
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
		if h := c.by[d.handler]; h != nil {
			h.Pending--
			h.Running++
			c.total.Pending--
			c.total.Running++
		}
	}
	return nil
}

func (c *counting) oldest(ctx context.Context) error {
	refs := make([]int32, 0, len(c.by))
	for ref := range c.by {
		refs = append(refs, ref)
	}
	var events []int64
	var handlers []int32
	for d := range c.runs {
		events, handlers = append(events, d.event), append(handlers, d.handler)
	}
	return c.rows(ctx, c.s.sql.oldest, func(scan func(...any) error) (bool, error) {
		var ref int32
		var due int64
		if err := scan(&ref, &due); err != nil {
			return false, err
		}
		at := instant(due)
		if h := c.by[ref]; h != nil {
			h.OldestDueAt = at
		}
		if c.total.OldestDueAt.IsZero() || at.Before(c.total.OldestDueAt) {
			c.total.OldestDueAt = at
		}
		return true, nil
	}, refs, c.now, events, handlers, c.parked)
}

func (c *counting) history(ctx context.Context) error {
	_, err := c.row(ctx, c.s.sql.countHistory, []any{&c.total.Completed})
	return err
}

func (c *counting) name(ctx context.Context) error {
	refs := make([]int32, 0, len(c.by))
	for ref := range c.by {
		refs = append(refs, ref)
	}
	err := c.rows(ctx, c.s.sql.names, func(scan func(...any) error) (bool, error) {
		var ref int32
		var id string
		if err := scan(&ref, &id); err != nil {
			return false, err
		}
		h := *c.by[ref]
		h.Handler = id
		c.total.Handlers = append(c.total.Handlers, h)
		return true, nil
	}, refs)
	slices.SortFunc(c.total.Handlers, func(a, b store.HandlerStats) int { return strings.Compare(a.Handler, b.Handler) })
	return err
}
