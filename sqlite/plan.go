package sqlite

import (
	"context"

	"github.com/relaybus-go/relaybus/store/lane"
)

// candidate is a ready delivery as a claim reads it.
type candidate struct {
	event, due     int64
	key            string
	gen            int64
	attempts, lost int
	alone          bool
	head           int64
	followers      bool
	ref            int64
	lane           uint8
	want           int
}

// plan decides what a claim takes. It changes what the worker has to do, and
// nothing in the database.
type plan struct {
	c       *claiming
	x       *session
	picker  *lane.Picker[int]
	picks   []candidate
	got     []int // how many of each handler
	yields  map[slice]int
	blocked []candidate
	// waits counts the blocked of each handler that were read.
	waits []int
	// seen has what was picked or found blocked: a lane may be read again.
	seen map[deliveryKey]struct{}
	// cut says that a reading was cut short by blocked deliveries.
	cut bool
	// stopped has the lanes where that happened.
	stopped map[slice]struct{}
	// more says that due work was left behind.
	more bool
	// running has the keys that run under other owners, for handlers with
	// aliases: those may be in lanes of other owners.
	running map[orderKey]bool
}

func newPlan(c *claiming, x *session) *plan {
	p := &plan{c: c, x: x, got: make([]int, len(c.wants)), waits: make([]int, len(c.wants)), yields: make(map[slice]int), stopped: make(map[slice]struct{}), seen: make(map[deliveryKey]struct{})}
	p.picker = lane.NewPicker(c.r.Limit, p.busy)
	return p
}

// busy reports whether a delivery of the handler and key runs.
func (p *plan) busy(hk lane.HandlerKey[int]) bool {
	refs := p.c.wants[hk.Handler].refs
	p.c.w.mu.Lock()
	defer p.c.w.mu.Unlock()
	for _, ref := range refs {
		if p.c.w.keys[orderKey{ref, hk.Key}] > 0 || p.running[orderKey{ref, hk.Key}] {
			return true
		}
	}
	return false
}

// fill picks, a share for each handler with due work, and what is left over for
// those that can use it.
func (p *plan) fill(ctx context.Context) error {
	if err := p.findRunning(ctx); err != nil {
		return err
	}
	for p.picker.Left() > 0 {
		shares, open := p.shares()
		if !open {
			// Nothing else was found: go on where blocked deliveries cut a
			// reading short, as far as one claim may.
			if len(p.picks) > 0 || len(p.stopped) == 0 {
				break
			}
			clear(p.stopped)
			continue
		}
		for i := range shares {
			if shares[i] == 0 {
				continue
			}
			p.picker.Allow(i, shares[i])
			before := len(p.picks)
			if err := p.serve(ctx, i); err != nil {
				return err
			}
			p.got[i] += len(p.picks) - before
			p.picker.Allow(i, -p.picker.Room(i)) // what it can't use goes round again
		}
	}
	return p.peek(ctx)
}

// shares divides what is left among the handlers that have something due.
func (p *plan) shares() (shares []int, open bool) {
	wants := make([]int, len(p.c.wants))
	for i := range wants {
		if _, _, _, due := p.oldest(i); due {
			wants[i] = max(p.c.wants[i].limit-p.got[i], 0)
			open = open || wants[i] > 0
		}
	}
	return lane.Shares(p.picker.Left(), wants, 0), open
}

// spent reports whether the claim has read as many blocked deliveries of a
// handler as it may. Each handler has a part of what one claim may read, so that
// the backlog of one does not use up the claims of the others.
func (p *plan) spent(i int) bool {
	return p.waits[i] >= max(lane.ParkBatch/len(p.waits), lane.ScanSlack)
}

// serve reads the lanes of one handler, the oldest first, until it has its share.
func (p *plan) serve(ctx context.Context, i int) error {
	for p.picker.Room(i) > 0 {
		ref, number, at, ok := p.oldest(i)
		if !ok {
			return nil
		}
		if err := p.visit(ctx, i, ref, number, at); err != nil {
			return err
		}
	}
	return nil
}

// peek finds out whether a limit left due work behind.
func (p *plan) peek(ctx context.Context) error {
	for i := range p.c.wants {
		if p.picker.Left() > 0 && p.got[i] < p.c.wants[i].limit {
			continue
		}
		for !p.more {
			ref, number, at, ok := p.oldest(i)
			if !ok {
				break
			}
			if err := p.visit(ctx, i, ref, number, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// oldest returns the lane of a handler where something has been due longest.
func (p *plan) oldest(i int) (ref int64, number uint8, at place, ok bool) {
	p.c.w.mu.Lock()
	defer p.c.w.mu.Unlock()
	if p.c.wants[i].held || p.spent(i) {
		return 0, 0, place{}, false
	}
	for _, candidate := range p.c.wants[i].refs {
		t := p.c.w.todo[candidate]
		if t == nil {
			continue
		}
		for n := range t.places {
			if !t.has[n] || t.places[n].due > p.c.now || (ok && t.places[n].due >= at.due) {
				continue
			}
			if _, stopped := p.stopped[slice{candidate, uint8(n)}]; !stopped {
				ref, number, at, ok = candidate, uint8(n), t.places[n], true
			}
		}
	}
	return ref, number, at, ok
}

// visit reads one lane and notes where the next claim goes on.
func (p *plan) visit(ctx context.Context, i int, ref int64, number uint8, at place) error {
	next, ok, err := p.readLane(ctx, i, ref, number, at)
	if err != nil {
		return err
	}
	p.c.w.mu.Lock()
	defer p.c.w.mu.Unlock()
	t := p.c.w.todo[ref]
	if ok {
		t.set(number, next)
	} else {
		t.drop(number)
	}
	return nil
}

// readLane offers the due deliveries of a slice. It returns the place from
// which on to read next time; ok is false when there is nothing.
func (p *plan) readLane(ctx context.Context, i int, ref int64, number uint8, at place) (next place, ok bool, err error) {
	c := p.c
	c.w.mu.Lock()
	owner := c.w.owner
	c.w.mu.Unlock()
	blocked := 0
	err = p.x.rows(ctx, c.s.sql.readLane, func(scan func(...any) error) (bool, error) {
		d := candidate{ref: ref, lane: number, want: i}
		if err := scan(&d.event, &d.due, &d.key, &d.gen, &d.attempts, &d.lost, &d.alone, &d.head, &d.followers); err != nil {
			return false, err
		}
		next, ok = place{d.due, d.event}, true
		if d.due > c.now {
			return false, nil
		}
		if _, seen := p.seen[deliveryKey{d.event, ref}]; seen {
			ok = false
			return true, nil
		}
		verdict, err := p.offer(ctx, &d)
		if err != nil {
			return false, err
		}
		switch verdict {
		case lane.Take:
			p.picks = append(p.picks, d)
			p.seen[deliveryKey{d.event, ref}] = struct{}{}
			p.yields[slice{ref, number}]++
		case lane.Blocked:
			p.blocked = append(p.blocked, d)
			p.waits[i]++
			p.seen[deliveryKey{d.event, ref}] = struct{}{}
			if blocked++; blocked >= lane.ScanSlack || p.spent(i) {
				p.cut = true
				p.stopped[slice{ref, number}] = struct{}{}
				next.event++
				return false, nil
			}
		case lane.Full:
			p.more = true
			return false, nil
		case lane.Running:
		}
		ok = false // until there is a further row
		return true, nil
	}, ref, number, at.due, at.event, owner)
	return next, ok, err
}

// offer asks the rules about one delivery.
func (p *plan) offer(ctx context.Context, d *candidate) (lane.Verdict, error) {
	wanted := &p.c.wants[d.want]
	p.c.w.mu.Lock()
	r := p.c.w.running[deliveryKey{d.event, d.ref}]
	runs := r != nil && r.token.Claims == d.gen
	p.c.w.mu.Unlock()
	if d.key != "" && !runs {
		for _, ref := range wanted.refs {
			if ref == d.ref {
				continue
			}
			first, found, err := p.x.head(ctx, ref, d.key)
			if err != nil {
				return 0, err
			}
			if found && first.event < d.head {
				d.head = first.event
			}
		}
	}
	return p.picker.Offer(lane.Candidate[int]{
		Handler: d.want, Key: d.key, Sequence: d.event, Head: d.head, Runs: runs,
	}), nil
}

// findRunning reads which keys of handlers with aliases run under other owners.
func (p *plan) findRunning(ctx context.Context) error {
	several := make(map[int64]bool)
	for i := range p.c.wants {
		if len(p.c.wants[i].refs) > 1 {
			for _, ref := range p.c.wants[i].refs {
				several[ref] = true
			}
		}
	}
	if len(several) == 0 {
		return nil
	}
	p.c.w.mu.Lock()
	owner := p.c.w.owner
	p.c.w.mu.Unlock()
	listed, err := p.x.claims(ctx, p.c.s.sql.claimsOfOthers, owner)
	if err != nil {
		return err
	}
	p.running = make(map[orderKey]bool)
	for _, l := range listed {
		if !several[l.handler] {
			continue
		}
		var key string
		found, err := p.x.row(ctx, p.c.s.sql.runningKey, []any{&key}, l.event, l.handler, l.gen)
		if err != nil {
			return err
		}
		if found {
			p.running[orderKey{l.handler, key}] = true
		}
	}
	return nil
}
