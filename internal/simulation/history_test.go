package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// history knows what truly happened: it hears of a commit or a settlement when
// the store has applied it, whatever the bus is told afterwards. It checks most
// rules at once, when something happens; final checks the rest.
type history struct {
	plan *plan

	mu         sync.Mutex
	violations []string
	// doubt: a call of which it can't be told how far it came.
	doubt      bool
	events     map[string]*eventRecord
	committed  int64
	deliveries map[deliveryName]*deliveryRecord
	keys       map[handlerKey]*keyRecord
	paused     map[string]bool
	// probes is until when some process leaves a handler alone.
	probes    time.Time
	processes []*process

	executions, takeovers, repeats, effects int
}

// deliveryName names a delivery by its handler's name, not by one of its ids.
type deliveryName struct{ event, handler string }

func (n deliveryName) String() string { return n.event + " for " + n.handler }

type handlerKey struct{ handler, key string }

type eventRecord struct {
	plan eventPlan
	// attempts counts the publishes of it that began.
	attempts int
	// order is its place among the commits, 0 for one that was not committed.
	order    int64
	sequence int64
}

type deliveryRecord struct {
	name    deliveryName
	event   *eventRecord
	handler *handlerPlan
	// The state of the delivery, as the store applied it.
	completed, dead, held, removed bool
	// moved: an operator changed it, so that its place in the order of first
	// executions is no longer given.
	moved    bool
	attempts int
	lost     int
	claim    *claimRecord

	runs, successes, burials, effects int
}

func (d *deliveryRecord) unfinished() bool {
	return !d.completed && !d.removed && (!d.dead || d.held)
}

// keyRecord is an ordering key as one handler sees it.
type keyRecord struct {
	deliveries []*deliveryRecord
	open       []*execution
	lastFirst  int64
}

// claimRecord is one claim that the store recorded.
type claimRecord struct {
	process  *process
	delivery *deliveryRecord
	token    lane.Token
	attempt  int
	// over: it was settled, released or taken over.
	over bool
	runs int
}

type execution struct {
	process  *process
	delivery *deliveryRecord
	// ordinal counts the executions of the delivery from 1.
	ordinal int
	ctx     context.Context //nolint:containedctx // what a handler was told counts at any later time
}

func newHistory(p *plan) *history {
	return &history{
		plan:       p,
		events:     make(map[string]*eventRecord),
		deliveries: make(map[deliveryName]*deliveryRecord),
		keys:       make(map[handlerKey]*keyRecord),
		paused:     make(map[string]bool),
	}
}

// report adds a violation. The caller holds the lock.
func (h *history) report(format string, args ...any) {
	if len(h.violations) < 20 {
		h.violations = append(h.violations, fmt.Sprintf(format, args...))
	}
}

// suspect is report from outside.
func (h *history) suspect(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report(format, args...)
}

func (h *history) exact() bool { return h.plan.strict && !h.doubt }

// name is the name of the handler behind an id.
func handlerName(id string) string {
	if strings.HasPrefix(id, "mail.v") {
		return "mail"
	}
	return id
}

// announce says which event stands behind an id, before it is published.
func (h *history) announce(e eventPlan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.events[e.id] == nil {
		h.events[e.id] = &eventRecord{plan: e}
	}
	h.events[e.id].attempts++
}

// commit is called while the store commits an event, or the repetition of one.
func (h *history) commit(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.events[id]
	if e == nil {
		h.report("I2: %s was appended and never published", id)
		return
	}
	if e.order != 0 {
		return
	}
	h.committed++
	e.order = h.committed
	for _, handler := range h.plan.handlers {
		if !handler.takes(e.plan.typeName) {
			continue
		}
		d := &deliveryRecord{name: deliveryName{id, handler.name}, event: e, handler: handler}
		h.deliveries[d.name] = d
		k := h.key(d)
		k.deliveries = append(k.deliveries, d)
	}
}

func (h *history) isCommitted(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[id] != nil && h.events[id].order != 0
}

func (h *history) key(d *deliveryRecord) *keyRecord {
	hk := handlerKey{d.name.handler, d.event.plan.key}
	if hk.key == "" {
		hk.key = "event " + d.name.event // alone, but no two executions of it at once either
	}
	k := h.keys[hk]
	if k == nil {
		k = &keyRecord{}
		h.keys[hk] = k
	}
	return k
}

// claimed is called when the store has recorded a claim. expired are the
// processes whose leases had run out when it began.
func (h *history) claimed(p *process, r store.ClaimRequest, result store.ClaimResult, expired []*process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, other := range expired {
		h.takenOver(other)
	}
	if !p.registered {
		p.registered, p.until = true, time.Time{}
	}
	p.until = later(p.until, r.Now.Add(r.Lease))
	for _, c := range result.Deliveries {
		d := h.deliveries[deliveryName{c.Event.ID, handlerName(c.Lease.Handler)}]
		if d == nil {
			h.report("I2: %s was claimed for %s, and has no such delivery", c.Event.ID, c.Lease.Handler)
			continue
		}
		h.checkClaim(d, c)
		d.claim = &claimRecord{process: p, delivery: d, token: c.Lease.Token, attempt: c.Attempt}
		p.claims[d.name] = d.claim
	}
}

func (h *history) checkClaim(d *deliveryRecord, c store.Claimed) {
	if d.event.sequence == 0 {
		d.event.sequence = c.Event.Sequence
	}
	if d.event.sequence != c.Event.Sequence || c.Event.Key != d.event.plan.key {
		h.report("I4: %s was claimed with key %q and sequence %d, and has key %q and sequence %d",
			d.name, c.Event.Key, c.Event.Sequence, d.event.plan.key, d.event.sequence)
	}
	if !h.exact() {
		return
	}
	if h.paused[c.Lease.Handler] {
		h.report("B17: %s was claimed while its handler was paused", d.name)
	}
	switch {
	case d.completed || d.removed:
		h.report("I3: %s was claimed again after it was completed", d.name)
	case d.dead:
		h.report("I3: %s was claimed while it was dead", d.name)
	case d.claim != nil && !d.claim.over:
		h.report("I5: %s was claimed by %s while %s has a lease for it", d.name, d.claim.process, d.claim.process)
	case c.Attempt != d.attempts+1 || c.Lost != d.lost:
		h.report("S8: %s was claimed with attempt %d and %d lost, %d attempts ended and %d were lost",
			d.name, c.Attempt, c.Lost, d.attempts, d.lost)
	}
	for _, other := range h.key(d).deliveries {
		switch {
		case other == d:
		case other.claim != nil && !other.claim.over:
			h.report("I4: %s was claimed while %s of its key was", d.name, other.name)
		case other.event.order < d.event.order && other.unfinished():
			h.report("I4: %s was claimed while %s before it was unfinished (held: %v)", d.name, other.name, other.held)
		}
	}
}

// expired returns the processes from which a claim at now takes over.
func (h *history) expired(p *process, now time.Time) []*process {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []*process
	for _, other := range h.processes {
		if other != p && other.registered && !other.until.After(now) {
			list = append(list, other)
		}
	}
	return list
}

func (h *history) takenOver(p *process) {
	if !p.registered {
		return
	}
	p.registered = false
	for name, c := range p.claims {
		if c.over {
			continue
		}
		c.over = true
		c.delivery.attempts++
		c.delivery.lost++
		h.takeovers++
		if h.exact() && p.healthySince().Before(p.until.Add(-h.plan.lease)) {
			h.report("F16: the lease of %s for %s ran out, and nothing was wrong with it", p, name)
		}
	}
}

// relinquished is called when the store has ended the owner of a process.
func (h *history) relinquished(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.registered = false
	for _, c := range p.claims {
		c.over = true
	}
}

func (h *history) extended(p *process, until time.Time, leases []store.Lease, holds []bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.registered {
		p.until = later(p.until, until)
	}
	for i, l := range leases {
		if c := p.current(l); h.exact() && holds[i] != (c != nil) {
			h.report("I5: renewing %s for %s gave %v", l.EventID, l.Handler, holds[i])
		}
	}
}

// settled is called when the store has ended claims.
func (h *history) settled(p *process, list []store.Settlement, ok []bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range list {
		c := p.current(s.Lease)
		if h.exact() && ok[i] != (c != nil) {
			h.report("I5: %s of %s for %s gave %v", s.Action, s.Lease.EventID, s.Lease.Handler, ok[i])
		}
		if !ok[i] {
			continue
		}
		d := h.deliveries[deliveryName{s.Lease.EventID, handlerName(s.Lease.Handler)}]
		if d == nil {
			continue
		}
		if c != nil {
			c.over = true
		}
		switch s.Action {
		case store.Complete:
			h.complete(d)
		case store.Reschedule:
			d.attempts++
		case store.Bury:
			d.attempts++
			d.burials++
			d.dead = true
			d.held = d.handler.hold && d.event.plan.key != ""
			if d.handler.hold != s.Hold {
				h.report("B13: %s was buried with hold %v", d.name, s.Hold)
			}
		case store.Release:
		}
	}
}

func (h *history) complete(d *deliveryRecord) {
	if d.completed {
		h.report("I5: %s was completed twice", d.name)
	}
	d.completed = true
	if d.successes == 0 {
		h.report("I5: %s was completed, and no execution of it succeeded", d.name)
	}
}

// completedInTx is called while a transaction commits that completes a delivery.
func (h *history) completedInTx(p *process, l store.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.deliveries[deliveryName{l.EventID, handlerName(l.Handler)}]
	if d == nil {
		return
	}
	c := p.current(l)
	if h.exact() && c == nil {
		h.report("I5: %s was completed in a transaction under a lost lease", d.name)
	}
	if c != nil {
		c.over = true
	}
	h.complete(d)
}

// refused is called when the store says that the lease of a transactional
// completion is lost.
func (h *history) refused(p *process, l store.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := p.current(l); h.exact() && c != nil {
		h.report("I5: the completion of %s for %s was refused under a lease that holds", l.EventID, l.Handler)
	}
}

// effect is called while a transactional handler's transaction commits.
func (h *history) effect(d *deliveryRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.effects++
	h.effects++
	if d.effects > 1 {
		h.report("I3: %s had its effect %d times", d.name, d.effects)
	}
}

// start is called by a handler when it starts. nil means that there can be no
// such execution.
func (h *history) start(p *process, handler, event, key string, attempt int, ctx context.Context) *execution { //nolint:revive // the context is an object of the test here
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.deliveries[deliveryName{event, handler}]
	if d == nil {
		h.report("I2: %s was executed for %s, which has no committed delivery of it", event, handler)
		return nil
	}
	x := &execution{process: p, delivery: d, ctx: ctx}
	h.executions++
	if d.runs > 0 {
		h.repeats++
	}
	if d.completed {
		h.report("I3: %s was executed by %s after its completion", d.name, p)
	}
	c := p.claims[d.name]
	switch {
	case c == nil:
		h.report("I3: %s was executed by %s, which never claimed it", d.name, p)
	case c.runs > 0:
		h.report("I3: %s was executed twice by %s under one claim", d.name, p)
	case c.attempt != attempt:
		h.report("I3: %s was executed by %s with attempt %d, and claimed with %d", d.name, p, attempt, c.attempt)
	}
	if c != nil {
		c.runs++
	}
	d.runs++
	x.ordinal = d.runs
	if key != d.event.plan.key {
		h.report("I4: %s was executed with key %q, and has key %q", d.name, key, d.event.plan.key)
	}
	h.startAlone(x)
	return x
}

// startAlone checks that nothing of its key runs beside an execution, and that
// it has its place in the order.
func (h *history) startAlone(x *execution) {
	d := x.delivery
	k := h.key(d)
	for _, o := range k.open {
		// One that was told to end and does not may be overtaken by another
		// process, never by its own.
		if o.process == x.process || o.ctx.Err() == nil {
			h.report("I4: %s was started by %s while %s ran in %s (told to end: %v)",
				d.name, x.process, o.delivery.name, o.process, o.ctx.Err() != nil)
		}
	}
	k.open = append(k.open, x)
	if d.runs > 1 || d.moved {
		return
	}
	if d.event.order < k.lastFirst {
		h.report("I4: %s was first executed after a later one of key %q", d.name, d.event.plan.key)
	}
	k.lastFirst = max(k.lastFirst, d.event.order)
}

// end is called when the handler's function ends.
func (h *history) end(x *execution, success bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := x.delivery
	if success {
		d.successes++
		delete(x.process.outages, d.name.handler)
	}
	k := h.key(d)
	for i, o := range k.open {
		if o == x {
			k.open = append(k.open[:i:i], k.open[i+1:]...)
			return
		}
	}
}

// operated is called when an operator's change has been applied.
func (h *history) operated(id store.DeliveryID, change func(d *deliveryRecord)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.deliveries[deliveryName{id.EventID, handlerName(id.Handler)}]
	if d == nil {
		h.report("I2: an operator changed %s for %s, which does not exist", id.EventID, id.Handler)
		return
	}
	change(d)
}

func (h *history) cancelled(event string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.deliveries {
		if d.name.event == event {
			if h.exact() && (d.runs > 0 || d.claim != nil && !d.claim.over) {
				h.report("S9: %s was cancelled although it was claimed", d.name)
			}
			d.removed = true
		}
	}
}

func (h *history) pause(handler string, paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paused[handler] = paused
}

// current returns the claim of the process that a lease stands for, if it is
// not over.
func (p *process) current(l store.Lease) *claimRecord {
	c := p.claims[deliveryName{l.EventID, handlerName(l.Handler)}]
	if c == nil || c.over || c.token != l.Token {
		return nil
	}
	return c
}

// outage is called when a handler reports one: its process leaves it alone for a
// second, and for twice as long after each further one. Hooks may never hear of
// it, as the answer of the release can get lost.
func (h *history) outage(p *process, handler *handlerPlan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wait := min(time.Second<<p.outages[handler.name], time.Minute)
	p.outages[handler.name]++
	h.probes = later(h.probes, time.Now().Add(wait))
}

func (h *history) cannotTell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt = true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
