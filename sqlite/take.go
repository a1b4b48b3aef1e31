package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// take is the writing part of a claim: one transaction.
func (c *claiming) take(ctx context.Context) error {
	c.plan, c.deliveries, c.work = nil, nil, false
	t, err := c.s.begin(ctx, c.op)
	if err != nil {
		return err
	}
	defer t.rollback()
	// What fails from here on may have taken places off the worker's list, and
	// a commit whose outcome is unknown may have recorded a claim.
	committed := false
	defer func() {
		if !committed {
			c.deliveries = nil
			c.dropKnown()
			c.w.mu.Lock()
			c.w.doubt = true
			c.w.mu.Unlock()
		}
	}()
	x := t.session
	work := still(ctx)
	if err := c.prepare(work, x); err != nil {
		return c.s.translate(c.op, err)
	}
	if err := c.pick(work, x); err != nil {
		return c.s.translate(c.op, err)
	}
	if err := c.park(work); err != nil {
		return c.s.translate(c.op, err)
	}
	if err := c.record(work, x); err != nil {
		return c.s.translate(c.op, err)
	}
	if err := ended(ctx, c.op); err != nil {
		return err
	}
	if err := t.commit(c.op); err != nil {
		return err
	}
	committed = true
	return nil
}

// prepare does what comes before the picking: the takeover of dead owners, the
// own lease, and what earlier claims left in doubt.
func (c *claiming) prepare(ctx context.Context, x *session) error {
	if err := c.s.current(ctx, x); err != nil {
		return err
	}
	if err := c.reap(ctx, x); err != nil {
		return err
	}
	if err := c.register(ctx, x); err != nil {
		return err
	}
	if err := c.reconcile(ctx, x); err != nil {
		return err
	}
	return c.findPaused(ctx, x)
}

// pick takes from where work is known, and looks for more when that was not
// enough and something may have happened that this worker was not told of.
func (c *claiming) pick(ctx context.Context, x *session) error {
	now := asOf{version: x.version, changes: c.s.changes.Load()}
	c.rotate()
	c.plan = newPlan(c, x)
	if err := c.fill(ctx); err != nil {
		return err
	}
	if c.picker.Left() == 0 {
		return nil
	}
	looked := false
	for i := range c.wants {
		if c.got[i] >= c.wants[i].limit || c.wants[i].held || c.spent(i) || c.isComplete(i, now) {
			continue
		}
		looked = true
		if err := c.discoverFor(ctx, x, i, now); err != nil {
			return err
		}
	}
	if !looked {
		return nil
	}
	return c.fill(ctx)
}

// rotate puts the handlers first that have waited longest.
func (c *claiming) rotate() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	slices.SortStableFunc(c.wants, func(a, b want) int {
		return cmp.Compare(c.w.served[a.ids[0]], c.w.served[b.ids[0]])
	})
}

// isComplete reports whether all that a handler has is known. With aliases, what
// other owners run matters, too, and nobody tells.
func (c *claiming) isComplete(i int, now asOf) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	refs := c.wants[i].refs
	return len(refs) == 0 || (len(refs) == 1 && c.w.complete[refs[0]] == now)
}

func (c *claiming) discoverFor(ctx context.Context, x *session, i int, now asOf) error {
	for _, ref := range c.wants[i].refs {
		if err := c.discoverLanes(ctx, x, i, ref); err != nil {
			return err
		}
		c.w.mu.Lock()
		c.w.complete[ref] = now
		c.w.mu.Unlock()
	}
	return nil
}

// dropKnown forgets what is known of the lanes of the handlers: it is read anew.
func (c *claiming) dropKnown() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for i := range c.wants {
		for _, ref := range c.wants[i].refs {
			delete(c.w.todo, ref)
			delete(c.w.complete, ref)
		}
	}
}

// record writes the claim: its lanes, and what it took.
func (c *claiming) record(ctx context.Context, x *session) error {
	if len(c.picks) == 0 {
		return nil
	}
	epochs, err := c.takeLanes(ctx, x)
	if err != nil {
		return err
	}
	c.w.mu.Lock()
	owner, number := c.w.owner, c.w.number+1
	c.w.number = number // A number is not used again, even if this fails.
	c.w.mu.Unlock()
	if _, err := x.exec(ctx, c.s.sql.addClaim, owner, number, claimText(c.picks)); err != nil {
		return err
	}
	events, err := x.events(ctx, c.picks)
	if err != nil {
		return err
	}
	for _, d := range c.picks {
		id, err := x.handlerID(ctx, d.ref)
		if err != nil {
			return err
		}
		e := events[d.event]
		c.deliveries = append(c.deliveries, store.Claimed{
			Event: e,
			Lease: store.Lease{
				EventID: e.ID,
				Handler: id,
				Token:   lane.Token{Lane: d.lane, Epoch: epochs[slice{d.ref, d.lane}], Claims: d.gen},
				Ref:     [2]int64{d.event, d.ref},
			},
			Attempt:   d.attempts + 1,
			Lost:      d.lost,
			Alone:     d.alone,
			Followers: d.followers,
			DueAt:     instant(d.due),
		})
	}
	x.onCommit(func() {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.turns++
		for i, d := range c.picks {
			c.w.served[c.wants[d.want].ids[0]] = c.w.turns
			c.w.add(deliveryKey{d.event, d.ref}, &run{
				lease: c.deliveries[i].Lease, token: c.deliveries[i].Lease.Token, key: d.key, claim: number,
			})
		}
	})
	return nil
}

// takeLanes leases the slices that brought something. Their epoch grows when
// they were not ours.
func (c *claiming) takeLanes(ctx context.Context, x *session) (map[slice]int64, error) {
	c.w.mu.Lock()
	owner := c.w.owner
	c.w.mu.Unlock()
	epochs := make(map[slice]int64, len(c.yields))
	for at := range c.yields {
		var epoch int64
		found, err := x.row(ctx, c.s.sql.takeLane, []any{&epoch}, at.handler, at.lane, owner)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, store.NewError(c.op, store.ErrConflict, "a lane changed hands inside of a transaction", nil)
		}
		epochs[at] = epoch
	}
	return epochs, nil
}

// events reads the events of the picks in one statement.
func (x *session) events(ctx context.Context, picks []candidate) (map[int64]store.Event, error) {
	list := make([]int64, 0, len(picks))
	events := make(map[int64]store.Event, len(picks))
	for _, d := range picks {
		if _, ok := events[d.event]; !ok {
			list = append(list, d.event)
			events[d.event] = store.Event{}
		}
	}
	err := x.rows(ctx, x.s.sql.readEvents, func(scan func(...any) error) (bool, error) {
		var e store.Event
		var seq, created int64
		if err := scan(&seq, &e.ID, &e.Type, &e.Source, &e.Key, &created, &e.CorrelationID, &e.CausationID,
			&e.Headers, &e.Payload); err != nil {
			return false, err
		}
		e.CreatedAt = instant(created)
		if e.Key != "" {
			e.Sequence = seq
		}
		events[seq] = e
		return true, nil
	}, numberList(list))
	return events, err
}
