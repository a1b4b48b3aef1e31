package sqlite

import (
	"context"

	"github.com/relaybus-go/relaybus/store/lane"
)

// look reads, without the write lock, where something is due, and whether there
// is an owner to take over from.
func (c *claiming) look(ctx context.Context) error {
	c.plan = nil
	c.dropKnown()
	return c.s.read(ctx, c.op, func(ctx context.Context, x *session) error {
		owner := c.owner()
		var lease int64
		found, err := x.row(ctx, c.s.sql.ownLease, []any{&lease}, owner)
		if err != nil {
			return err
		}
		if !found {
			// Somebody took over from it.
			c.w.mu.Lock()
			c.w.forget()
			c.w.mu.Unlock()
			owner = 0
		}
		var dead int64
		expired, err := x.row(ctx, c.s.sql.expiredOwners, []any{&dead}, c.now, owner)
		if err != nil {
			return err
		}
		c.expired = expired
		return c.discover(still(ctx), x)
	})
}

// discover finds the lanes of the handlers that have something to claim. What
// was known of them is dropped before the session begins: a hint that comes in
// later is of a commit that the session may not see, and stays.
func (c *claiming) discover(ctx context.Context, x *session) error {
	if err := c.findPaused(ctx, x); err != nil {
		return err
	}
	c.w.mu.Lock()
	c.w.looked, c.w.claimed = c.now, 0
	c.w.mu.Unlock()
	for i := range c.wants {
		if c.wants[i].held {
			continue
		}
		for _, ref := range c.wants[i].refs {
			if err := c.discoverLanes(ctx, x, i, ref); err != nil || c.work {
				return err
			}
		}
	}
	return nil
}

func (c *claiming) findPaused(ctx context.Context, x *session) error {
	paused := make(map[int64]bool)
	err := x.rows(ctx, c.s.sql.pausedRefs, func(scan func(...any) error) (bool, error) {
		var ref int64
		err := scan(&ref)
		paused[ref] = true
		return true, err
	})
	if err != nil {
		return err
	}
	c.w.mu.Lock()
	c.w.paused = paused
	c.w.mu.Unlock()
	c.hold()
	return nil
}

// hold marks the handlers that are paused, as far as is known.
func (c *claiming) hold() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range c.wants {
		c.wants[i].held = false
		for _, ref := range c.wants[i].refs {
			c.wants[i].held = c.wants[i].held || c.w.paused[ref]
		}
	}
}

// firstReady is the due time of the first ready delivery of a lane.
type firstReady struct {
	lane uint8
	due  int64
}

// lanesWithWork finds the lanes of a stored handler that have ready deliveries,
// whoever has them, until each returns false. The statement gives each as
// lane << 54 + due, with a due time of at most 53 bits and a sign.
func (x *session) lanesWithWork(ctx context.Context, ref int64, each func(firstReady) (more bool)) error {
	const bits = 54
	return x.rows(ctx, x.s.sql.discover, func(scan func(...any) error) (bool, error) {
		var at int64
		err := scan(&at)
		number := (at + 1<<(bits-1)) >> bits
		return each(firstReady{uint8(number), at - number<<bits}), err //nolint:gosec // a lane is below 256
	}, ref)
}

// discoverLanes notes from where on the lanes of a stored handler are to be read.
// A snapshot only has to tell whether there is work: the transaction that follows
// then discovers the lanes itself, on a connection whose cache is warm.
func (c *claiming) discoverLanes(ctx context.Context, x *session, i int, ref int64) error {
	var foreign, mine [lane.Count]bool
	err := x.rows(ctx, c.s.sql.foreignLanes, func(scan func(...any) error) (bool, error) {
		var number uint8
		err := scan(&number)
		foreign[number] = true
		return true, err
	}, ref, c.owner())
	if err != nil {
		return err
	}
	c.w.mu.Lock()
	for number := range mine {
		mine[number] = c.w.held[slice{ref, uint8(number)}] > 0
	}
	c.w.mu.Unlock()
	var lanes []firstReady
	err = x.lanesWithWork(ctx, ref, func(f firstReady) bool {
		if !foreign[f.lane] {
			lanes = append(lanes, f)
			c.work = x.snapshot && !mine[f.lane] && f.due <= c.now
		}
		return !c.work
	})
	if err != nil || c.work {
		return err
	}
	probe := newPlan(c, x)
	for _, f := range lanes {
		at, found := place{due: f.due}, true
		if mine[f.lane] && f.due <= c.now && x.snapshot {
			// The first ones may just be those that run.
			if at, found, err = probe.firstFree(ctx, i, ref, f.lane, at); err != nil {
				return err
			}
		}
		if found {
			c.w.hint(slice{ref, f.lane}, at.due)
		}
	}
	return nil
}

// firstFree returns the place of the first delivery in a slice of ours that
// could be claimed, or becomes due later.
func (p *plan) firstFree(ctx context.Context, i int, ref int64, number uint8, from place) (place, bool, error) {
	p.picker = lane.NewPicker(1, p.busy)
	p.picks, p.blocked, p.cut = nil, nil, false
	p.waits[i] = 0
	clear(p.seen)
	p.picker.Allow(i, 1)
	at, found, err := p.readLane(ctx, i, ref, number, from)
	if p.cut {
		// To be read from the start, and parked.
		return from, true, err
	}
	if err == nil && len(p.picks) > 0 {
		pick := p.picks[0]
		return place{pick.due, pick.event}, true, nil
	}
	return at, found, err
}
