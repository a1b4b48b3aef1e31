package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// candidate is a ready delivery as a claim reads it.
type candidate struct {
	order          int64 // of its slice in the statement
	event, due     int64
	ref            int32
	lane           uint8
	gen            int32
	attempts, lost int
	alone          bool
	key            string
	epoch          int64
	head           deliveryKey
	followers      bool
	want           int
	of             store.Event
}

func (d *candidate) slice() slice { return slice{d.ref, d.lane} }

func (d *candidate) scan(scan func(...any) error) error {
	var headOf *int32
	var head *int64
	var created int64
	err := scan(&d.order, &d.event, &d.ref, &d.lane, &d.due, &d.gen, &d.attempts, &d.lost, &d.alone, &d.key, &d.epoch,
		&headOf, &head, &d.followers,
		&d.of.ID, &d.of.Type, &d.of.Source, &created, &d.of.CorrelationID, &d.of.CausationID,
		&d.of.Headers, &d.of.Payload)
	if err != nil {
		return err
	}
	if head != nil && headOf != nil {
		d.head = deliveryKey{*head, *headOf}
	}
	d.of.CreatedAt = instant(created)
	if d.of.Key = d.key; d.key != "" {
		d.of.Sequence = d.event
	}
	return nil
}

// pick takes what was read, a share for each handler, and what is left over for
// those that can use it.
func (a *attempting) pick() {
	for a.picker.Left() > 0 {
		open := make([]int, len(a.wants))
		some := false
		for i := range a.wants {
			open[i] = max(min(a.limit(i), len(a.rows[i])-a.next[i]), 0)
			some = some || open[i] > 0
		}
		if !some {
			return
		}
		for i, share := range lane.Shares(a.picker.Left(), open, 0) {
			if share == 0 {
				continue
			}
			a.picker.Allow(i, share)
			for a.picker.Room(i) > 0 && a.next[i] < len(a.rows[i]) {
				a.offer(i)
			}
			a.picker.Allow(i, -a.picker.Room(i)) // What it can't use goes round again.
		}
	}
}

// peek finds out whether a limit left due work behind.
func (a *attempting) peek() {
	for i := range a.wants {
		for a.next[i] < len(a.rows[i]) {
			if a.offer(i) == lane.Full {
				a.more = true
				break
			}
		}
	}
}

// offer asks the rules about the next delivery of a handler.
func (a *attempting) offer(i int) lane.Verdict {
	d := a.rows[i][a.next[i]]
	a.w.mu.Lock()
	r := a.w.running[deliveryKey{d.event, d.ref}]
	runs := r != nil && r.lease.Token.Claims == int64(d.gen)
	if gen, ok := a.w.ended[deliveryKey{d.event, d.ref}]; ok && int64(d.gen) <= gen {
		runs = true // The reading is older than its end.
	}
	a.w.mu.Unlock()
	verdict := a.picker.Offer(lane.Candidate[int]{
		Handler: i, Key: d.key, Sequence: d.event, Head: cmp.Or(d.head.event, d.event), Runs: runs,
	})
	if verdict == lane.Full {
		return verdict
	}
	a.next[i]++
	switch verdict {
	case lane.Take:
		a.picks = append(a.picks, d)
		a.got[i]++
	case lane.Blocked:
		a.blocked = append(a.blocked, d)
		a.waits[i]++
		a.read[d.slice()].blocked++
	case lane.Running, lane.Full:
	}
	return verdict
}

// record writes what was picked and parked, and commits.
func (a *attempting) record(ctx context.Context) error {
	p := &pipeline{s: a.s}
	me := a.w.id()
	a.w.mu.Lock()
	a.w.number++ // A number is not used again, even if this fails.
	number := a.w.number
	emptied := slices.Clone(a.w.emptied)
	a.w.mu.Unlock()
	a.park(p)
	if len(a.picks) > 0 {
		events, handlers, gens, lanes := listOf(a.picks)
		p.add(a.s.sql.addClaim, noRows, me, number, events, handlers, gens, lanes)
	}
	if len(emptied) > 0 {
		p.add(a.s.sql.dropClaims, noRows, me, emptied)
	}
	a.s.crash("recording a claim")
	p.commit()
	// Once it is sent, nobody but the server can stop it.
	if err := a.ended(); err != nil {
		return err
	}
	if err := p.settled(a.op, p.run(ctx, a.conn)); err != nil {
		a.w.mu.Lock()
		a.w.doubt = a.w.doubt || errors.Is(err, store.ErrOutcomeUnknown)
		a.w.mu.Unlock()
		return err
	}
	a.s.crash("recorded a claim")
	a.handOut(number, emptied)
	return nil
}

func listOf(picks []*candidate) (events []int64, handlers, gens []int32, lanes []int16) {
	for _, d := range picks {
		events, handlers = append(events, d.event), append(handlers, d.ref)
		gens, lanes = append(gens, d.gen), append(lanes, int16(d.lane))
	}
	return events, handlers, gens, lanes
}

// handOut notes a claim that is committed.
func (a *attempting) handOut(number int64, emptied []int64) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.dropped(emptied)
	if a.renew {
		a.w.lease = max(a.w.lease, a.until)
	}
	for at := range a.took {
		a.w.owns[at] = struct{}{}
	}
	a.w.turns++
	a.total += len(a.picks)
	a.deliveries = slices.Grow(a.deliveries, len(a.picks))
	for _, d := range a.picks {
		lease := store.Lease{
			EventID: d.of.ID,
			Handler: a.s.handlers.id(d.ref),
			Token:   lane.Token{Lane: d.lane, Epoch: d.epoch, Claims: int64(d.gen)},
			Ref:     [2]int64{d.event, int64(d.ref)},
		}
		a.w.add(deliveryKey{d.event, d.ref}, &run{lease: lease, key: d.key, due: d.due, claim: number})
		a.w.served[a.wants[d.want].id] = a.w.turns
		a.taken[a.wants[d.want].id]++
		a.w.owns[d.slice()] = struct{}{}
		a.deliveries = append(a.deliveries, store.Claimed{
			Event: d.of, Lease: lease, Attempt: d.attempts + 1, Lost: d.lost, Alone: d.alone, Followers: d.followers,
			DueAt: instant(d.due),
		})
	}
	clear(a.got) // They are among what was taken now.
	a.advance()
	a.behind = !a.full() && a.last-a.w.sequence != a.s.appends.Load()-a.w.appends
}

// advance notes from where the next claim reads each slice.
func (a *attempting) advance() {
	first := make(map[slice]place)
	for i := range a.wants {
		for _, d := range a.rows[i][a.next[i]:] {
			at, from := d.slice(), place{d.due, d.event}
			if old, ok := first[at]; !ok || from.before(old) {
				first[at] = from
			}
		}
	}
	for at, r := range a.read {
		if from, ok := first[at]; ok {
			a.w.move(at, from, true, a.mark)
			continue
		}
		a.w.move(at, r.last, r.cut, a.mark)
	}
	for _, r := range a.read {
		a.more = a.more || r.cut && r.blocked >= lane.ScanSlack // The next claim goes on there.
	}
	for i := range a.wants {
		if a.more || a.wants[i].held || (a.limit(i) > 0 && a.picker.Left() > 0) {
			continue
		}
		// A limit was reached, and there are lanes that were not read.
		for at, t := range a.w.todo {
			a.more = a.more || t.due <= a.now && slices.Contains(a.wants[i].refs, at.handler)
		}
	}
}

// park moves blocked deliveries out of the way of later claims: those of keys with
// many of them, and those that cut a reading short. The first unfinished delivery
// of a key is never parked: nothing would bring it back.
func (a *attempting) park(p *pipeline) {
	var events, heads []int64
	var handlers, of []int32
	for _, d := range a.blocked {
		many := a.picker.Waiting(d.want, d.key) >= lane.ParkAt || a.read[d.slice()].cut
		if d.head.event == 0 || d.event <= d.head.event || !many || len(events) == lane.ParkBatch {
			continue
		}
		events, handlers = append(events, d.event), append(handlers, d.ref)
		heads, of = append(heads, d.head.event), append(of, d.head.handler)
	}
	if len(events) > 0 {
		p.add(a.s.sql.park, noRows, events, handlers, heads, of)
	}
}
