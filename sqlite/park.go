package sqlite

import (
	"context"

	"github.com/relaybus-go/relaybus/store/lane"
)

// park moves blocked deliveries out of the way of later claims: those of keys
// with many of them, all when they cut a reading short, and those in lanes of
// which the claim takes nothing, since every claim would read them again. The
// first unfinished delivery of a key is never parked: nothing would bring it back.
func (c *claiming) park(ctx context.Context) error {
	budget := lane.ParkBatch
	long := make(map[lane.HandlerKey[int]]int64)
	for i := range c.blocked {
		d := &c.blocked[i]
		many := c.picker.Waiting(d.want, d.key) >= lane.ParkAt
		if d.event <= d.head || (!many && !c.cut && c.keeps(slice{d.ref, d.lane})) {
			continue
		}
		if many {
			hk := lane.HandlerKey[int]{Handler: d.want, Key: d.key}
			long[hk] = max(long[hk], d.event)
		}
		if budget == 0 {
			break
		}
		budget--
		if _, err := c.x.exec(ctx, c.s.sql.park, d.event, d.ref, c.owner()); err != nil {
			return err
		}
	}
	if !c.cut {
		return nil
	}
	for hk, last := range long {
		for _, ref := range c.wants[hk.Handler].refs {
			if err := c.parkBehind(ctx, ref, hk.Key, last, &budget); err != nil {
				return err
			}
		}
	}
	return nil
}

// keeps reports whether the owner has the lane after the claim.
func (c *claiming) keeps(at slice) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.w.held[at] > 0 || c.yields[at] > 0
}

// parkBehind parks what follows on the deliveries of a long key that were read.
func (c *claiming) parkBehind(ctx context.Context, ref int64, key string, last int64, budget *int) error {
	if *budget <= 0 {
		return nil
	}
	var events []int64
	err := c.x.rows(ctx, c.s.sql.behind, func(scan func(...any) error) (bool, error) {
		var event int64
		var state int
		if err := scan(&event, &state); err != nil {
			return false, err
		}
		if state == stateReady && !c.runs(deliveryKey{event, ref}) {
			events = append(events, event)
		}
		return true, nil
	}, ref, key, last, *budget)
	if err != nil {
		return err
	}
	for _, event := range events {
		*budget--
		if _, err := c.x.exec(ctx, c.s.sql.park, event, ref, c.owner()); err != nil {
			return err
		}
	}
	return nil
}

// runs reports whether a delivery runs, or is being taken.
func (c *claiming) runs(d deliveryKey) bool {
	for i := range c.picks {
		if c.picks[i].event == d.event && c.picks[i].ref == d.handler {
			return true
		}
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.w.running[d] != nil
}

// first is the first unfinished delivery of a key.
type first struct {
	event, state, due int64
	lane              uint8
}

func (x *session) head(ctx context.Context, ref int64, key string) (f first, found bool, err error) {
	found, err = x.row(ctx, x.s.sql.headOf, []any{&f.event, &f.state, &f.lane, &f.due}, ref, key)
	return f, found, err
}

// unblock brings back the parked delivery that is now the first of its key. A
// claim checks again whether it is blocked by another id of its handler.
func (x *session) unblock(ctx context.Context, ref int64, key string) error {
	refs, err := x.group(ctx, ref)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		f, found, err := x.head(ctx, ref, key)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if f.state == stateParked {
			if _, err := x.exec(ctx, x.s.sql.unpark, f.event, ref); err != nil {
				return err
			}
		}
		x.onCommit(func() { x.s.hint(slice{ref, f.lane}, f.due) })
	}
	return nil
}
