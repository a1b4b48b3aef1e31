package fleettest

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// checkRest: nothing is left, and nothing is stuck.
func (r *Report) checkRest() {
	for _, what := range slices.Sorted(maps.Keys(r.kept.Left)) {
		if n := r.kept.Left[what]; n != 0 {
			r.report("I6: %d %s at the end", n, what)
		}
	}
	if kills := len(r.f.killed); r.torn > kills {
		r.report("the log has %d torn lines after %d kills", r.torn, kills)
	}
}

// checkRows: an event is there exactly when the row is that was written with it
// (I2), and each event has its handlers.
func (r *Report) checkRows() {
	booked := make(map[string]int)
	for id, e := range r.events {
		if e.Handlers != len(HandlersOf(e.Type)) {
			r.report("I1: %s has %d handlers", id, e.Handlers)
		}
		if e.Type == OrderBooked.Name() {
			booked[e.Payload.ID]++
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
func (r *Report) checkPublishes() {
	committed := make(map[string][]string) // by key
	below := make(map[string]int64)        // the greatest sequence that was committed before a publish began
	greatest := make(map[string]int64)     // by key
	for _, e := range r.log {
		stored := r.events[e.Event]
		switch e.What {
		case SaidPublishing:
			below[e.Event] = greatest[e.Key]
		case SaidRolledBack:
			if stored != nil || r.orders[e.Event] {
				r.report("I2: %s was rolled back, and is there", e.Event)
			}
		case SaidCommitted:
			if stored == nil {
				r.report("I1: %s was committed, and is not there", e.Event)
				continue
			}
			if stored.Key == "" {
				continue
			}
			committed[stored.Key] = append(committed[stored.Key], e.Event)
			greatest[stored.Key] = max(greatest[stored.Key], stored.Sequence)
		}
	}
	for id, least := range below {
		if e := r.events[id]; e != nil && e.Key != "" && e.Sequence <= least {
			r.report("I4: %s has sequence %d, and %d of its key had been committed before it was published", id, e.Sequence, least)
		}
	}
	if len(committed) < publisherKeys/2 {
		r.report("only %d keys were used", len(committed))
	}
}

// checkHandled: each event was completed once by each of its handlers, unless it
// is dead where that is expected; and nothing else was executed.
func (r *Report) checkHandled() {
	for id, e := range r.events {
		var dead []string
		if e.Payload.Doomed && e.Type == OrderPlaced.Name() {
			dead = []string{HandlerDoomed}
		}
		if !slices.Equal(e.Dead, dead) {
			r.report("%s is dead for %v, want %v", id, e.Dead, dead)
		}
		if e.Completed != e.Handlers-len(dead) {
			r.report("I5: %d completions of %s, want %d", e.Completed, id, e.Handlers-len(dead))
		}
		for _, handler := range without(HandlersOf(e.Type), dead...) {
			if !slices.ContainsFunc(r.byDelivery[delivered{id, handler}], func(a *attempt) bool { return a.returned >= 0 && !a.failed }) {
				r.report("I1: no execution of %s for %s returned without an error", id, handler)
			}
		}
	}
	for d, list := range r.byDelivery {
		e := r.events[d.event]
		if e == nil || !slices.Contains(HandlersOf(e.Type), d.handler) {
			r.report("I2: %s was executed for %s, and there is no such delivery", d.event, d.handler)
			continue
		}
		for _, a := range list {
			if a.key != e.Key || (e.Key != "" && a.sequence != e.Sequence) {
				r.report("%s came with key %q and sequence %d, want %q and %d", d.event, a.key, a.sequence, e.Key, e.Sequence)
			}
		}
	}
}

// checkEffects: each order has one effect.
func (r *Report) checkEffects() {
	for id, e := range r.events {
		if e.Type == OrderPlaced.Name() && r.effects[id] != 1 {
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
func (r *Report) checkDuplicates() {
	for d, list := range r.byDelivery {
		for i, a := range list[:len(list)-1] {
			next := list[i+1]
			switch a.outcome {
			case SaidRetried, SaidReleased:
				continue
			case SaidBuried:
				if d.handler != HandlerDoomed {
					r.report("I3: %s was executed for %s after it was dead", d.event, d.handler)
				}
				continue
			case SaidSucceeded:
				r.report("I3: %s was executed for %s by %s after %s had completed it", d.event, d.handler, next.process, a.process)
				continue
			case "":
				if !r.f.killed[a.process] && !r.leftBehind(a.process) {
					r.report("I3: %s was executed for %s by %s again, and %s was not killed", d.event, d.handler, next.process, a.process)
					continue
				}
			}
			// It may have failed, and have been killed before the bus said so.
			if a.failed || a.undone {
				continue
			}
			r.mustHaveExpired(a, next)
		}
	}
}

// mustHaveExpired reports an execution that began although the lease of another
// one is known to have been valid.
func (r *Report) mustHaveExpired(a, next *attempt) {
	if until := r.provenLease(a, next.started); time.UnixMilli(next.startedAt).Before(until) {
		r.report("I5: %s ran %s for %s (attempt %d), and %s (attempt %d) began in %s %v before that lease ended",
			a.process, a.event, a.handler, a.number, next.event, next.number, next.process,
			until.Sub(time.UnixMilli(next.startedAt)))
	}
}

// checkOrder: first executions of a handler and key follow the sequence, and no
// two executions of them are at work at once while a lease is known to be valid.
func (r *Report) checkOrder() {
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

// leftBehind reports whether a process may have left claims behind when it ended by itself, as the database was gone.
func (r *Report) leftBehind(process string) bool { return r.f.Faults && r.stopping[process] }

// checkTrouble: no error reaches anybody (L1), however many processes there are; only a fault of the database is seen.
func (r *Report) checkTrouble() {
	faults := false
	for _, e := range r.log {
		faults = faults || e.What == SaidFault
		if e.What == SaidTrouble || e.What == SaidOutage && !faults {
			r.report("L1: %s: %s", e.Process, e.Text)
		}
	}
}

// without returns the list without the words.
func without(list []string, words ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(one string) bool { return slices.Contains(words, one) })
}
