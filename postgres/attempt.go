package postgres

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// errStale says that a claim has to begin anew: its owner is no more, or the
// handlers have changed.
var errStale = store.NewError("claim deliveries", store.ErrConflict, "what the claim goes by has changed", nil)

// rounds bounds how often one claim reads.
const rounds = 64

// pageRows is how many rows one round reads of a handler beyond a few, so that
// blocked ones are parked before too many of them were read.
const pageRows = 512

// attempt claims from where work is known: one transaction.
func (c *claiming) attempt(ctx context.Context) error {
	for range attempts {
		if c.w.id() == 0 {
			if err := c.register(ctx); err != nil {
				return err
			}
		}
		err := c.s.on(ctx, c.op, func(within context.Context, conn *pgxpool.Conn) error {
			c.more = false
			a := &attempting{claiming: c, conn: conn, ended: func() error { return ended(ctx, c.op) }}
			return a.run(within)
		})
		if err == nil || !errors.Is(err, errStale) {
			return err
		}
		if err := c.resolve(ctx); err != nil {
			return err
		}
	}
	return store.NewError(c.op, store.ErrConflict, "the owner is taken over from again and again; is the lease too short?", nil)
}

// attempting is one run of that transaction.
type attempting struct {
	*claiming
	conn *pgxpool.Conn
	// ended is whether the caller's context has.
	ended func() error
	// mark is the worker's clock when the reading began.
	mark   uint64
	picker *lane.Picker[int]
	rows   [][]*candidate // of each handler, in the order of the reading
	next   []int          // the first of them that is not consumed
	got    []int
	picks  []*candidate
	// blocked were read and can't be taken; waits counts them by handler.
	blocked []*candidate
	waits   []int
	// read has what was read of each slice.
	read map[slice]*reading
	// took are the lanes that were taken, in this transaction.
	took map[slice]struct{}
	// whole says for handlers with several ids which lanes of all of them we have.
	whole map[slice]struct{}
	renew bool
	until int64
	// last is the last sequence that was given out when it began.
	last int64
}

// reading is what a claim has read of a slice.
type reading struct {
	most  int64
	n     int64 // rows that were read in this round
	last  place
	cut   bool // there may be more
	order int  // its number in the statement
	// blocked counts what was read in this claim and can't be taken.
	blocked int
}

func (a *attempting) run(ctx context.Context) error {
	a.begin()
	defer a.endReading()
	for round := range rounds {
		chosen := a.choose(round)
		if round > 0 && len(chosen.reads) == 0 {
			break
		}
		if err := a.send(ctx, round, chosen); err != nil {
			return err
		}
		a.pick()
		if a.full() {
			break
		}
	}
	a.peek()
	return a.record(ctx)
}

// begin opens the reading: what ends from now on may still be seen by it.
func (a *attempting) begin() {
	a.picker = lane.NewPicker(a.r.Limit-a.total, a.busy)
	a.rows, a.next, a.got = make([][]*candidate, len(a.wants)), make([]int, len(a.wants)), make([]int, len(a.wants))
	a.waits = make([]int, len(a.wants))
	a.read, a.took, a.whole = make(map[slice]*reading), make(map[slice]struct{}), make(map[slice]struct{})
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.clock++
	a.mark = a.w.clock
	a.w.ended = make(map[deliveryKey]int64)
	a.until = lane.LeaseUntil(a.w.lease, a.now, a.lease)
	a.renew = a.until > a.w.lease
}

func (a *attempting) endReading() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.ended = nil
}

// busy reports whether a delivery of the handler and key runs.
func (a *attempting) busy(hk lane.HandlerKey[int]) bool {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return slices.ContainsFunc(a.wants[hk.Handler].refs, func(ref int32) bool { return a.w.keys[orderKey{ref, hk.Key}] > 0 })
}

// full reports whether no handler wants more.
func (a *attempting) full() bool {
	if a.picker.Left() <= 0 {
		return true
	}
	for i := range a.wants {
		if !a.wants[i].held && a.limit(i) > 0 {
			return false
		}
	}
	return true
}

// limit is how many more of a handler are wanted.
func (a *attempting) limit(i int) int {
	wanted := &a.wants[i]
	return wanted.limit - a.taken[wanted.id] - a.got[i]
}

// choice is what a round takes and reads.
type choice struct {
	take    []slice
	holders []int64
	reads   map[int][]slice // by handler
}

// choose decides which slices a round reads: those that the owner has, the oldest
// first, and a few that it takes, more in each round. Those of other owners are
// left to them as long as there is enough else, unless they have waited for long.
func (a *attempting) choose(round int) choice {
	ch := choice{reads: make(map[int][]slice)}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	for i := range a.wants {
		wanted := &a.wants[i]
		room := min(a.limit(i), a.picker.Left())
		if wanted.held || room <= 0 || a.waits[i] >= lane.ParkBatch {
			continue
		}
		mine, free, foreign := a.candidates(wanted, false)
		if len(mine)+len(free)+len(foreign) == 0 && len(a.picks) == 0 {
			// Nothing else was found: go on where blocked ones cut a reading short.
			mine, free, foreign = a.candidates(wanted, true)
		}
		ch.reads[i] = append(ch.reads[i], mine[:min(len(mine), max(room, lane.FirstRound))]...)
		lacks := len(mine) < room
		take := 0
		for _, at := range slices.Concat(free, foreign) {
			if take == lane.Rounds(round) {
				break
			}
			t := a.w.todo[at]
			if t.holder != 0 && !lacks && t.due > a.now-lookMillis {
				continue
			}
			if !lacks && len(mine) > 0 && a.w.todo[mine[len(mine)-1]].before(t.place) && t.due > a.now-lookMillis {
				continue // Own work is older, and enough.
			}
			take++
			ch.reads[i] = append(ch.reads[i], at)
			for _, ref := range wanted.refs {
				ch.take = append(ch.take, slice{ref, at.lane})
			}
			if t.holder != 0 && !slices.Contains(ch.holders, t.holder) {
				ch.holders = append(ch.holders, t.holder)
			}
		}
		if len(wanted.refs) > 1 {
			a.withSiblings(&ch, wanted, i)
		}
		slices.SortStableFunc(ch.reads[i], func(x, y slice) int { return comparePlaces(a.w.todo[x].place, a.w.todo[y].place) })
		if len(ch.reads[i]) == 0 {
			delete(ch.reads, i)
		}
	}
	return ch
}

// withSiblings takes the lanes of the other ids of the handler, too: who runs a
// key must have all of them.
func (a *attempting) withSiblings(ch *choice, wanted *want, i int) {
	for _, at := range ch.reads[i] {
		for _, ref := range wanted.refs {
			sibling := slice{ref, at.lane}
			if _, ok := a.w.owns[sibling]; !ok && !slices.Contains(ch.take, sibling) {
				ch.take = append(ch.take, sibling)
			}
			if holder := a.w.foreign[sibling]; holder != 0 && !slices.Contains(ch.holders, holder) {
				ch.holders = append(ch.holders, holder)
			}
		}
	}
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.event, b.event))
}

// candidates returns the slices of a handler that have something due and were not
// read to their end, the oldest first. Those in which much was blocked come only
// when they are asked for, so that they keep nobody from the others.
func (a *attempting) candidates(wanted *want, stopped bool) (mine, free, foreign []slice) {
	for at, t := range a.w.todo {
		if t.due > a.now || !slices.Contains(wanted.refs, at.handler) {
			continue
		}
		if r := a.read[at]; r != nil && (!r.cut || r.blocked >= lane.ScanSlack && !stopped) {
			continue
		}
		_, owns := a.w.owns[at]
		_, took := a.took[at]
		switch {
		case owns || took:
			mine = append(mine, at)
		case t.holder == 0:
			free = append(free, at)
		default:
			foreign = append(foreign, at)
		}
	}
	for _, list := range [][]slice{mine, free, foreign} {
		slices.SortFunc(list, func(x, y slice) int { return comparePlaces(a.w.todo[x].place, a.w.todo[y].place) })
	}
	return mine, free, foreign
}

// send takes lanes and reads, in one round trip.
func (a *attempting) send(ctx context.Context, round int, ch choice) error {
	p := &pipeline{s: a.s}
	me := a.w.id()
	found := round > 0
	handlers := newSpecial()
	if round == 0 {
		p.begin(a.conn)
		// Nobody takes over from us, or takes a lane, before the end of the claim.
		p.add(a.s.sql.shareOwner, func(func(...any) error) (bool, error) {
			found = true
			return true, nil
		}, me)
		if a.renew {
			p.add(a.s.sql.renewOwner, noRows, me, a.until)
		}
		p.add(a.s.sql.special, handlers.scan)
		p.add(a.s.sql.sequence, func(scan func(...any) error) (bool, error) { return true, scan(&a.last) })
	}
	if len(ch.holders) > 0 {
		p.add(a.s.sql.tryOwners, noRows, ch.holders)
	}
	if len(ch.take) > 0 {
		handlers, lanes := slicesOf(ch.take)
		p.add(a.s.sql.take, func(scan func(...any) error) (bool, error) {
			var at slice
			err := scan(&at.handler, &at.lane)
			a.took[at] = struct{}{}
			return true, err
		}, me, handlers, lanes)
	}
	for i := range a.wants {
		if list := ch.reads[i]; len(list) > 0 {
			a.addRead(p, i, me, list)
		}
	}
	if err := p.run(ctx, a.conn); err != nil {
		return err
	}
	if !found {
		a.w.mu.Lock()
		a.w.forget()
		a.w.mu.Unlock()
		return errStale
	}
	if round == 0 {
		changed := a.learn(handlers)
		paused := slices.ContainsFunc(a.wants, func(w want) bool {
			return !w.held && slices.ContainsFunc(w.refs, func(ref int32) bool { return handlers.paused[ref] })
		})
		if changed || paused {
			return errStale
		}
	}
	for _, at := range ch.take {
		if _, ok := a.took[at]; !ok {
			a.notTaken(at)
		}
	}
	return nil
}

// notTaken forgets a lane that somebody else has: the next look finds it again.
func (a *attempting) notTaken(at slice) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if _, ok := a.w.owns[at]; !ok {
		a.w.move(at, place{}, false, a.mark)
	}
}

func slicesOf(list []slice) (handlers []int32, lanes []int16) {
	for _, at := range list {
		handlers, lanes = append(handlers, at.handler), append(lanes, int16(at.lane))
	}
	return handlers, lanes
}

// addRead adds the reading of the slices of one handler.
func (a *attempting) addRead(p *pipeline, i int, me int64, list []slice) {
	wanted := &a.wants[i]
	room := int64(min(a.limit(i), a.picker.Left(), pageRows))
	handlers, lanes := slicesOf(list)
	dues, events, most := make([]int64, len(list)), make([]int64, len(list)), make([]int64, len(list))
	total := room + 1 // One more tells whether something is left behind.
	a.w.mu.Lock()
	places := make(map[slice]place, len(list))
	for _, at := range list {
		places[at] = a.w.todo[at].place
		if before := a.read[at]; before != nil {
			places[at] = before.last
		}
	}
	runs := a.w.runningFrom(places)
	for n, at := range list {
		from, held := places[at], runs[at]
		r := &reading{most: room + held + lane.ScanSlack, last: from, order: n + 1}
		if before := a.read[at]; before != nil {
			r.blocked = before.blocked
		}
		a.read[at] = r
		dues[n], events[n], most[n] = from.due, from.event, r.most
		total += held
	}
	a.w.mu.Unlock()
	total = min(total, math.MaxInt32)
	if len(wanted.refs) > 1 {
		p.add(a.s.sql.owned, func(scan func(...any) error) (bool, error) {
			var at slice
			err := scan(&at.handler, &at.lane)
			a.whole[at] = struct{}{}
			return true, err
		}, me, wanted.refs)
	}
	n, lastOrder := int64(0), int64(0)
	p.add(a.s.sql.read, func(scan func(...any) error) (bool, error) {
		d := &candidate{want: i}
		if err := d.scan(scan); err != nil {
			return false, err
		}
		n++
		at := d.slice()
		r := a.read[at]
		r.n++
		r.last = place{d.due, d.event + 1}
		lastOrder = max(lastOrder, d.order)
		if len(wanted.refs) == 1 || a.hasAll(wanted, d.lane) {
			a.rows[i] = append(a.rows[i], d)
		}
		if n == total {
			// The reading was cut short: of the slice that it ended in, and of
			// those behind, there may be more.
			for _, at := range list {
				if r := a.read[at]; int64(r.order) >= lastOrder {
					r.cut = true
				}
			}
		}
		if r.n == r.most {
			r.cut = true
		}
		return true, nil
	}, me, handlers, lanes, dues, events, most, a.now, total, wanted.refs)
}

// hasAll reports whether we have the lane of all ids of a handler.
func (a *attempting) hasAll(wanted *want, number uint8) bool {
	for _, ref := range wanted.refs {
		if _, ok := a.whole[slice{ref, number}]; !ok {
			return false
		}
	}
	return true
}
