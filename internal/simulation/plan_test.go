package simulation_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is everything that a seed decides.
type plan struct {
	seed     uint64
	lease    time.Duration
	poll     time.Duration
	grace    time.Duration
	linger   time.Duration
	retryCap time.Duration
	attempts int
	handlers []*handlerPlan
	slots    []*slotPlan
	steps    []step
	// calm is when the faults stop.
	calm time.Duration
	// strict: calls of the store go one after the other, so that what the
	// history knows is exact. Otherwise they run at the same time, and checks
	// that need to know the order of two calls are left out.
	strict bool
	// rude: some slow calls ignore the end of their context.
	rude bool
}

// handlerPlan is a handler as all processes together have it.
type handlerPlan struct {
	name          string
	types         []string
	transactional bool
	hold          bool
	// follow: it publishes a follow-up event.
	follow      bool
	concurrency int
	timeout     time.Duration
}

func (h *handlerPlan) takes(typeName string) bool {
	return slices.ContainsFunc(h.types, func(pattern string) bool {
		prefix, isPattern := strings.CutSuffix(pattern, "*")
		return pattern == typeName || isPattern && strings.HasPrefix(typeName, prefix)
	})
}

// slotPlan is a place for a process: its incarnations come one after the other
// under one owner name.
type slotPlan struct {
	number int
	owner  string
	// handlers has the ids of the handlers that it runs, by their names.
	handlers    map[string]string
	concurrency int
	batch       int
	publishOnly bool
	// byRun: it lives by Bus.Run, not by Start and Stop.
	byRun bool
	// rate is the share of calls of the store that go wrong.
	rate float64
	cuts []cut
}

// cut is a time in which the store can't be reached.
type cut struct {
	from, to time.Duration
	// hangs: calls don't fail, they don't answer.
	hangs bool
}

type eventPlan struct {
	id, typeName, key string
	delay             time.Duration
}

type stepKind uint8

const (
	publishAlone stepKind = iota
	publishInTransaction
	publishNested
	publishNestedFails
	publishRolledBack
	publishPanics
	publishSlowly
	publishInCallers
	publishInCallersRolledBack
	publishAgain
	requeue
	requeueWhere
	bury
	reschedule
	skip
	cancel
	pause
	read
	stopProcess
	crashProcess
	lastKind = crashProcess
)

// step is what somebody does at some time.
type step struct {
	kind   stepKind
	at     time.Duration
	slot   int
	events []eventPlan
	// choice selects among what is there when the step runs.
	choice uint64
	// again: an unknown outcome is followed by another publish of the same ids.
	again bool
	// lasts is how long a pause or a slow transaction lasts.
	lasts time.Duration
}

const (
	orderPlaced  = "order.placed"
	orderPaid    = "order.paid"
	shipmentSent = "shipment.sent"
)

func newPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := &plan{
		seed:     seed,
		lease:    pickOne(r, 400*time.Millisecond, time.Second, time.Second, 3*time.Second),
		poll:     pickOne(r, 50*time.Millisecond, 150*time.Millisecond, 300*time.Millisecond),
		linger:   pickOne(r, time.Millisecond, 5*time.Millisecond),
		retryCap: 200 * time.Millisecond,
		attempts: 2 + r.IntN(3),
		strict:   seed%4 != 3,
		rude:     r.IntN(3) == 0,
	}
	p.grace = p.lease / time.Duration(11+r.IntN(10))
	p.calm = 2*p.lease + time.Duration(r.Int64N(int64(2*p.lease)))
	p.planHandlers(r)
	p.planSlots(r)
	p.planSteps(r)
	return p
}

func (p *plan) planHandlers(r *rand.Rand) {
	all := []*handlerPlan{
		{name: "ledger", types: []string{"order.*"}, transactional: true},
		{name: "mail", types: []string{orderPlaced}},
		{name: "stock", types: []string{orderPlaced}, hold: true},
		{name: "audit", types: []string{"*"}},
		{name: "packer", types: []string{orderPlaced}, transactional: true, follow: true, hold: r.IntN(2) == 0},
		{name: "shipper", types: []string{orderPaid}, follow: true},
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	p.handlers = all[:2+r.IntN(3)]
	if slices.ContainsFunc(p.handlers, func(h *handlerPlan) bool { return h.follow }) {
		p.handlers = append(p.handlers, &handlerPlan{name: "courier", types: []string{shipmentSent}, transactional: r.IntN(2) == 0})
	}
	for _, h := range p.handlers {
		if r.IntN(2) == 0 {
			h.concurrency = 1
		}
		if !h.transactional && r.IntN(3) == 0 {
			h.timeout = p.lease/4 + time.Duration(r.Int64N(int64(p.lease)))
		}
	}
}

func (p *plan) planSlots(r *rand.Rand) {
	rate := pickOne(r, 0, 0.01, 0.03, 0.08, 0.2)
	n := pickOne(r, 1, 2, 2, 3, 3, 4)
	for i := range n {
		s := &slotPlan{
			number:      i,
			owner:       fmt.Sprintf("worker-%d", i),
			handlers:    make(map[string]string),
			concurrency: 1 + r.IntN(5),
			byRun:       r.IntN(3) == 0,
			rate:        rate,
		}
		s.batch = 1 + r.IntN(2*s.concurrency)
		s.publishOnly = i > 1 && r.IntN(5) == 0
		for _, h := range p.handlers {
			if !s.publishOnly && (i == 0 || r.IntN(3) > 0) {
				s.handlers[h.name] = h.name
			}
		}
		if _, ok := s.handlers["mail"]; ok {
			s.handlers["mail"] = fmt.Sprintf("mail.v%d", 1+i%2)
		}
		for rate > 0 && r.IntN(3) == 0 {
			from := time.Duration(r.Int64N(int64(p.calm)))
			s.cuts = append(s.cuts, cut{
				from: from, to: from + time.Duration(r.IntN(2))*p.lease + time.Duration(r.Int64N(int64(p.lease/2))),
				hangs: r.IntN(2) == 0,
			})
		}
		p.slots = append(p.slots, s)
	}
}

func (p *plan) planSteps(r *rand.Rand) {
	keys := []string{"", "k1", "k1", "k2", "k3"}[:2+r.IntN(4)]
	crashes := r.IntN(4)
	if p.slots[0].rate == 0 {
		crashes = r.IntN(2)
	}
	for range 10 + r.IntN(16) {
		s := step{
			kind:   stepKind(r.UintN(uint(lastKind) + 1)), //nolint:gosec // it is small
			at:     time.Duration(r.Int64N(int64(p.calm))),
			slot:   r.IntN(len(p.slots)),
			choice: r.Uint64(),
			again:  r.IntN(2) == 0,
			lasts:  time.Duration(r.Int64N(int64(p.lease))),
		}
		if r.IntN(3) == 0 {
			s.at = s.at.Truncate(p.lease / 4) // so that some come together
		}
		if s.kind == crashProcess {
			if crashes == 0 {
				s.kind = publishInTransaction
			}
			crashes--
		}
		if s.kind == stopProcess && r.IntN(2) == 0 {
			s.kind = publishAlone
		}
		if s.kind < publishAgain {
			for n := range 1 + r.IntN(3) {
				e := eventPlan{
					id:       fmt.Sprintf("e%d.%d", len(p.steps), n),
					typeName: pickOne(r, orderPlaced, orderPlaced, orderPaid),
					key:      pickOne(r, keys...),
				}
				if r.IntN(6) == 0 {
					e.delay = time.Duration(r.Int64N(int64(p.lease)))
				}
				s.events = append(s.events, e)
			}
		}
		p.steps = append(p.steps, s)
	}
}

// random returns random numbers for one decision of the plan: the same for the
// same words, whatever was decided before.
func (p *plan) random(words ...string) *rand.Rand {
	h := fnv.New64a()
	for _, w := range words {
		_, _ = h.Write([]byte(w)) // it never fails
		_, _ = h.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(p.seed, h.Sum64()))
}

func pickOne[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }
