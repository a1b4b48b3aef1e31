package memstore

import (
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// fingerprinter hashes the states of worlds.
type fingerprinter struct{ seed maphash.Seed }

// print returns a hash of all that the future of the world depends on.
func (f fingerprinter) print(w *world) uint64 {
	var b strings.Builder
	fmt.Fprint(&b, w.clock, w.ticks, w.crashes, w.losses, w.acted, "\n")
	w.db.describe(&b)
	for _, n := range w.nodes {
		n.describe(&b)
	}
	return maphash.String(f.seed, b.String())
}

// describe writes what the database has.
func (db *database) describe(b *strings.Builder) {
	for e := range db.log.all() {
		fmt.Fprint(b, e.data.ID, e.completed, e.retained)
		for _, d := range e.deliveries {
			fmt.Fprint(b, " ", d.handler.id, d.state, d.hold, d.due-millis(checkStart()), d.claims, d.attempts, d.lost, ownerNumber(db.running[d]))
		}
		b.WriteByte('\n')
	}
	for _, number := range slices.Sorted(maps.Keys(db.owners)) {
		fmt.Fprint(b, number, db.owners[number].until-millis(checkStart()), " ")
	}
	for _, id := range slices.Sorted(maps.Keys(db.handlers)) {
		for _, s := range db.handlers[id].slices {
			if s != nil {
				fmt.Fprint(b, " ", s.number, s.epoch, s.edits, ownerNumber(s.owner))
			}
		}
	}
	b.WriteByte('\n')
}

// describe writes what the node knows and where its processes stand.
func (n *node) describe(b *strings.Builder) {
	fmt.Fprint(b, n.name, n.dead, n.claims, n.leaving, n.disturbed)
	if n.dead {
		return
	}
	s, w := n.store, n.store.worker(n.name)
	fmt.Fprint(b, " ", ownerNumber(w.owner), w.unsure, s.db.changes-s.own != s.seen, s.forgot-millis(checkStart()))
	var mark lane.Mark
	for _, p := range n.processes {
		fmt.Fprint(b, "\n", p.Label(), p.Done())
		switch local := p.local.(type) {
		case *claim:
			local.describe(b)
			if local.read != nil {
				mark = local.read.bounds
			}
			slices.SortFunc(n.readable, func(a, b store.DeliveryID) int { return strings.Compare(a.EventID, b.EventID) })
			fmt.Fprint(b, n.readable, n.next)
		case settling:
			fmt.Fprint(b, local.job.id(), local.one.Lease.Token, local.one.Action, local.one.DueAt, local.job.valid)
		case *job:
			fmt.Fprint(b, local.id(), local.claimed.Lease.Token, local.valid)
		}
	}
	for _, j := range n.jobs {
		fmt.Fprint(b, " ", j.id(), j.claimed.Lease.Token, j.claimed.Attempt, j.owner)
	}
	var held []string
	w.book.Each(func(id store.DeliveryID, t lane.Token) bool {
		held = append(held, fmt.Sprint(id, t))
		return true
	})
	slices.Sort(held)
	fmt.Fprint(b, held)
	describeBounds(b, s.bounds, uint64(mark))
}

// describeBounds writes what the bounds say, and how their clocks compare with
// the mark of the reading.
func describeBounds(b *strings.Builder, bounds *lane.Bounds[int64], mark uint64) {
	v := reflect.ValueOf(bounds).Elem()
	fmt.Fprint(b, " ", v.FieldByName("forgot").Uint() > mark)
	known := v.FieldByName("slices")
	var lines []string
	for at := known.MapRange(); at.Next(); {
		empty := at.Value().FieldByName("empty")
		lines = append(lines, fmt.Sprint(at.Key().Int(), empty.FieldByName("ext").Int(), empty.FieldByName("wall").Uint(),
			at.Value().FieldByName("hinted").Uint() > mark))
	}
	slices.Sort(lines)
	fmt.Fprint(b, lines)
}

// describe writes what a claim carries.
func (c *claim) describe(b *strings.Builder) {
	fmt.Fprint(b, " ", c.now-millis(checkStart()), c.round, c.slack, c.parked, c.reading, ownerNumber(c.owner))
	if c.read == nil {
		return
	}
	fmt.Fprint(b, " running", c.read.running, "next", c.read.next)
	for _, v := range c.read.views {
		fmt.Fprint(b, " view", v.more, len(v.cut))
		for _, next := range v.candidates {
			next.describe(b)
			// What ended since the reading began stays out of it.
			c.worker.mu.Lock()
			fmt.Fprint(b, c.worker.book.Ran(c.read.mark, next.id()))
			c.worker.mu.Unlock()
		}
		for _, s := range v.free {
			fmt.Fprint(b, " free", s.number)
		}
		for _, i := range v.idle {
			fmt.Fprint(b, " idle", i.slice.number, i.next)
		}
	}
	if c.choice == nil {
		return
	}
	fmt.Fprint(b, " choice", c.choice.left, c.choice.more)
	for _, next := range c.choice.taken {
		next.describe(b)
	}
	for _, next := range c.choice.blocked {
		next.describe(b)
	}
	for _, s := range c.choice.wanted {
		fmt.Fprint(b, " wants", s.number)
	}
}

func (next *candidate) describe(b *strings.Builder) {
	fmt.Fprint(b, " ", next.event.data.ID, next.slice.number, next.epoch, next.edits, next.generation, next.attempts,
		next.head, next.blocked, next.elsewhere, next.runs)
}
