package fleettest

import (
	"slices"
	"time"
)

// recoverySlack is what 95 of 100 recoveries may take beside a lease and a poll: the machine is busy, those who could
// take over are killed, too, and what was recovered waits for a free slot of its handler.
const recoverySlack = 5 * time.Second

// outage is a time in which the database served nobody, by the machine's clock.
type outage struct{ from, to int64 }

// checkRecovery: what a killed worker ran is claimed again a lease and a poll after its death, by the clocks that the
// buses gave to the store; times without a database do not count.
func (r *Report) checkRecovery() {
	died := make(map[string]int64)
	var outages []outage
	for _, e := range r.log {
		switch e.What {
		case SaidCrash:
			died[e.Process] = e.At
		case SaidDead:
			if died[e.Text] == 0 {
				died[e.Text] = e.At
			}
		case SaidFault:
			outages = append(outages, outage{e.At, e.At})
		case SaidMended:
			outages[len(outages)-1].to = e.At
		}
	}
	var all []time.Duration
	for d, list := range r.claims {
		if d.handler == HandlerMail {
			continue // It is paused now and then.
		}
		for i, c := range list[:len(list)-1] {
			next := list[i+1]
			at, ok := died[c.process]
			if !ok || !r.diedAtWork(c, d) || next.Generation != c.Generation+1 || next.now < at {
				continue
			}
			took := time.Duration(next.now-at) * time.Millisecond
			for _, o := range outages {
				took -= time.Duration(max(min(o.to, next.now)-max(o.from, at), 0)) * time.Millisecond
			}
			all = append(all, took)
		}
	}
	if len(all) == 0 {
		if len(r.f.killed) > 0 {
			r.report("nothing was recovered")
		}
		return
	}
	slices.Sort(all)
	most, usual := r.f.Lease+Poll, all[len(all)*95/100]
	r.t.Logf("recovery of %d deliveries that ran in processes when they died: median %v, 95th percentile %v, at most %v; "+
		"a lease and a poll are %v", len(all), all[len(all)/2], usual, all[len(all)-1], most)
	if usual > most+recoverySlack {
		r.report("I6: a twentieth of the deliveries took %v or longer to be recovered, a lease and a poll are %v", usual, most)
	}
}
