package fleettest

import (
	"cmp"
	"slices"
)

// checkCharges follows the claims of each delivery by its generation: each
// generation is claimed once, and an attempt is charged as lost once when the
// claim before ended with a kill, and else only when it ended with a lost lease.
func (r *Report) checkCharges() {
	unseen := 0
	// A claim is not seen by its process either when the database breaks before it has said that it is committed.
	deaths := r.f.workers + r.f.faults*Workers
	for d, list := range r.claims {
		slices.SortStableFunc(list, func(a, b claimed) int { return cmp.Compare(a.Generation, b.Generation) })
		before := claimed{Taken: Taken{Attempt: 1}}
		for i, c := range list {
			ended, lost := c.Attempt-before.Attempt, c.Lost-before.Lost
			// steps is how many claims have ended since the one before, which
			// includes that one; before the first there are only unseen ones.
			steps := int(c.Generation - before.Generation)
			switch {
			case i > 0 && steps == 0:
				r.report("I5: generation %d of %s for %s was claimed by %s and by %s", c.Generation, d.event, d.handler, before.process, c.process)
			case d.handler == HandlerDoomed:
				// Requeues count from 0 again.
			case lost < 0 || lost > ended || ended > steps:
				r.report("S8: %d claims of %s for %s charged %d attempts, %d of them as lost", steps, d.event, d.handler, ended, lost)
			case i > 0 && steps == 1 && lost == 0 && !claimedBy(before.process, list[i:]) && r.diedAtWork(before, d):
				r.report("S8: %s died while it ran %s for %s, and no attempt was charged", before.process, d.event, d.handler)
			case i > 0 && steps == 1 && lost == 1 && !r.f.killed[before.process] && !r.leftBehind(before.process) && !r.lostLease(before, d):
				r.report("S8: %s for %s was charged as lost, and %s was not killed", d.event, d.handler, before.process)
			}
			// Claims whose process was killed before it could note them.
			unseen += max(steps-min(i, 1), 0)
			before = c
		}
		if most := deaths + r.lost; before.Lost > most {
			r.report("S8: %s for %s lost %d attempts in %d kills", d.event, d.handler, before.Lost, most)
		}
	}
	if most := deaths * concurrency; unseen > most {
		r.report("S8: %d deliveries were claimed unseen in %d kills and %d faults", unseen, r.f.workers, r.f.faults)
	}
}

func claimedBy(process string, list []claimed) bool {
	return slices.ContainsFunc(list, func(c claimed) bool { return c.process == process })
}

// diedAtWork reports whether a process was killed when nothing had ended the
// claim but its death.
func (r *Report) diedAtWork(c claimed, d delivered) bool {
	return r.f.killed[c.process] && !r.stopping[c.process] &&
		slices.ContainsFunc(r.byDelivery[d], func(a *attempt) bool {
			return a.process == c.process && a.number == c.Attempt && a.outcome == "" && !a.failed && !a.undone
		})
}

func (r *Report) lostLease(c claimed, d delivered) bool {
	return r.lostLeases[held{c.process, d.event, d.handler, c.Attempt}]
}
