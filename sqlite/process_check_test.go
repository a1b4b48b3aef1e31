package sqlite_test

import (
	"cmp"
	"slices"
	"time"
)

// checkRows: an event is there exactly when the row is that was written with it
// (I2), and each event has its handlers.
func (r *report) checkRows() {
	booked := make(map[string]int)
	for id, e := range r.events {
		if e.handlers != len(handlersOf(e.eventType)) {
			r.report("I1: %s has %d handlers", id, e.handlers)
		}
		if e.eventType == orderBooked.Name() {
			booked[e.of.ID]++
			continue
		}
		if !r.orders[id] {
			r.report("I2: the event %s is there, and its row is not", id)
		}
	}
	for id := range r.orders {
		if r.events[id] == nil {
			r.report("I1: the row %s is there, and its event is not", id)
		}
	}
	for id, n := range r.effects {
		if booked[id] != n {
			r.report("B12: %d effects of %s, and %d events that were published with them", n, id, booked[id])
		}
	}
	for id, n := range booked {
		if r.effects[id] != n {
			r.report("B12: %d events were published with %d effects of %s", n, r.effects[id], id)
		}
	}
}

// checkPublishes: what a publisher knows is so (I7), and the order of commits
// that it knows is that of the sequences.
func (r *report) checkPublishes() {
	committed := make(map[string][]string) // by key
	below := make(map[string]int64)        // the greatest sequence that was committed before a publish began
	greatest := make(map[string]int64)     // by key
	for _, e := range r.log {
		stored := r.events[e.Event]
		switch e.What {
		case saidPublishing:
			below[e.Event] = greatest[e.Key]
		case saidRolledBack:
			if stored != nil || r.orders[e.Event] {
				r.report("I2: %s was rolled back, and is there", e.Event)
			}
		case saidCommitted:
			if stored == nil {
				r.report("I1: %s was committed, and is not there", e.Event)
				continue
			}
			if stored.key == "" {
				continue
			}
			committed[stored.key] = append(committed[stored.key], e.Event)
			greatest[stored.key] = max(greatest[stored.key], stored.sequence)
		}
	}
	for id, least := range below {
		if e := r.events[id]; e != nil && e.key != "" && e.sequence <= least {
			r.report("I4: %s has sequence %d, and %d of its key had been committed before it was published", id, e.sequence, least)
		}
	}
	if len(committed) < publisherKeys/2 {
		r.report("only %d keys were used", len(committed))
	}
}

// checkHandled: each event was completed once by each of its handlers, unless it
// is dead where that is expected; and nothing else was executed.
func (r *report) checkHandled() {
	for id, e := range r.events {
		var dead []string
		if e.of.Doomed && e.eventType == orderPlaced.Name() {
			dead = []string{handlerDoomed}
		}
		if !slices.Equal(e.dead, dead) {
			r.report("%s is dead for %v, want %v", id, e.dead, dead)
		}
		if e.completed != e.handlers-len(dead) {
			r.report("I5: %d completions of %s, want %d", e.completed, id, e.handlers-len(dead))
		}
		for _, handler := range without(handlersOf(e.eventType), dead...) {
			if !slices.ContainsFunc(r.byDelivery[delivered{id, handler}], func(a *attempt) bool { return a.returned >= 0 && !a.failed }) {
				r.report("I1: no execution of %s for %s returned without an error", id, handler)
			}
		}
	}
	for d, list := range r.byDelivery {
		e := r.events[d.event]
		if e == nil || !slices.Contains(handlersOf(e.eventType), d.handler) {
			r.report("I2: %s was executed for %s, and there is no such delivery", d.event, d.handler)
			continue
		}
		for _, a := range list {
			if a.key != e.key || (e.key != "" && a.sequence != e.sequence) {
				r.report("%s came with key %q and sequence %d, want %q and %d", d.event, a.key, a.sequence, e.key, e.sequence)
			}
		}
	}
}

// checkEffects: each order has one effect.
func (r *report) checkEffects() {
	for id, e := range r.events {
		if e.eventType == orderPlaced.Name() && r.effects[id] != 1 {
			r.report("I3: %d effects of %s", r.effects[id], id)
		}
	}
}

// checkDuplicates: a delivery is executed again only if the execution before
//
//   - failed, was released, or died and was requeued, as the bus said, or
//   - lost its lease, as the bus said, or
//   - was in flight when its process was killed: nothing was said of its end.
//
// In the last two cases the next one starts only after the lease has run out
// that the process is known to have had.
func (r *report) checkDuplicates() {
	for d, list := range r.byDelivery {
		for i, a := range list[:len(list)-1] {
			next := list[i+1]
			switch a.outcome {
			case saidRetried, saidReleased:
				continue
			case saidBuried:
				if d.handler != handlerDoomed {
					r.report("I3: %s was executed for %s after it was dead", d.event, d.handler)
				}
				continue
			case saidSucceeded:
				r.report("I3: %s was executed for %s by %s after %s had completed it", d.event, d.handler, next.process, a.process)
				continue
			case "":
				if !r.f.killed[a.process] {
					r.report("I3: %s was executed for %s by %s again, and %s was not killed", d.event, d.handler, next.process, a.process)
					continue
				}
			}
			// It may have failed, and have been killed before the bus said so.
			if a.failed {
				continue
			}
			r.mustHaveExpired(a, next)
		}
	}
}

// mustHaveExpired reports an execution that began although the lease of another
// one is known to have been valid.
func (r *report) mustHaveExpired(a, next *attempt) {
	if until := r.provenLease(a, next.started); time.UnixMilli(next.startedAt).Before(until) {
		r.report("I5: %s ran %s for %s (attempt %d), and %s (attempt %d) began in %s %v before that lease ended",
			a.process, a.event, a.handler, a.number, next.event, next.number, next.process,
			until.Sub(time.UnixMilli(next.startedAt)))
	}
}

// checkOrder: first executions of a handler and key follow the sequence, and no
// two executions of them are at work at once while a lease is known to be valid.
func (r *report) checkOrder() {
	byKey := make(map[delivered][]*attempt) // handler and key
	for _, a := range r.attempts {
		if a.key != "" {
			k := delivered{a.key, a.handler}
			byKey[k] = append(byKey[k], a)
		}
	}
	for k, list := range byKey {
		slices.SortFunc(list, func(a, b *attempt) int { return cmp.Compare(a.started, b.started) })
		begun := make(map[string]bool)
		greatest := int64(0)
		for i, a := range list {
			if !begun[a.event] {
				begun[a.event] = true
				if a.sequence <= greatest {
					r.report("I4: %s with sequence %d of %s was first executed for %s after sequence %d",
						a.event, a.sequence, k.event, k.handler, greatest)
				}
				greatest = max(greatest, a.sequence)
			}
			// It is known to be at work until it returns, or until the last line
			// of its process.
			last := a.returned
			if last < 0 {
				last = r.last[a.process]
			}
			for _, other := range list[i+1:] {
				if other.started > last {
					break
				}
				r.mustHaveExpired(a, other)
			}
		}
	}
}

// checkCharges follows the claims of each delivery by its generation: each
// generation is claimed once, and an attempt is charged as lost once when the
// claim before ended with a kill, and else only when it ended with a lost lease.
func (r *report) checkCharges() {
	unseen := 0
	for d, list := range r.claims {
		slices.SortStableFunc(list, func(a, b claimed) int { return cmp.Compare(a.Generation, b.Generation) })
		before := claimed{taken: taken{Attempt: 1}}
		for i, c := range list {
			ended, lost := c.Attempt-before.Attempt, c.Lost-before.Lost
			// steps is how many claims have ended since the one before, which
			// includes that one; before the first there are only unseen ones.
			steps := int(c.Generation - before.Generation)
			switch {
			case i > 0 && steps == 0:
				r.report("I5: generation %d of %s for %s was claimed by %s and by %s", c.Generation, d.event, d.handler, before.process, c.process)
			case d.handler == handlerDoomed:
				// Requeues count from 0 again.
			case lost < 0 || lost > ended || ended > steps:
				r.report("S8: %d claims of %s for %s charged %d attempts, %d of them as lost", steps, d.event, d.handler, ended, lost)
			case i > 0 && steps == 1 && lost == 0 && !claimedBy(before.process, list[i:]) && r.diedAtWork(before, d):
				r.report("S8: %s died while it ran %s for %s, and no attempt was charged", before.process, d.event, d.handler)
			case i > 0 && steps == 1 && lost == 1 && !r.f.killed[before.process] && !r.lostLease(before, d):
				r.report("S8: %s for %s was charged as lost, and %s was not killed", d.event, d.handler, before.process)
			}
			// Claims whose process was killed before it could note them.
			unseen += max(steps-min(i, 1), 0)
			before = c
		}
		if most := r.f.workers + r.lost; before.Lost > most {
			r.report("S8: %s for %s lost %d attempts in %d kills", d.event, d.handler, before.Lost, most)
		}
	}
	const batch = 8
	if most := r.f.workers * batch; unseen > most {
		r.report("S8: %d deliveries were claimed unseen in %d kills", unseen, r.f.workers)
	}
}

func claimedBy(process string, list []claimed) bool {
	return slices.ContainsFunc(list, func(c claimed) bool { return c.process == process })
}

// diedAtWork reports whether a process was killed when nothing had ended the
// claim but its death.
func (r *report) diedAtWork(c claimed, d delivered) bool {
	return r.f.killed[c.process] && !r.stopping[c.process] &&
		slices.ContainsFunc(r.byDelivery[d], func(a *attempt) bool {
			return a.process == c.process && a.number == c.Attempt && a.outcome == "" && !a.failed
		})
}

func (r *report) lostLease(c claimed, d delivered) bool {
	return r.lostLeases[held{c.process, d.event, d.handler, c.Attempt}]
}

// checkTrouble: no error reaches anybody (L1), however many processes there are.
func (r *report) checkTrouble() {
	for _, e := range r.log {
		if e.What == saidTrouble {
			r.report("L1: %s: %s", e.Process, e.Text)
		}
	}
}
