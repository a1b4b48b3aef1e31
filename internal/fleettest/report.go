package fleettest

import (
	"fmt"
	"testing"
	"time"
)

// attempt is one execution of a handler, with the places of its lines in the log.
type attempt struct {
	process, event, handler, key string
	sequence                     int64
	number                       int
	started                      int
	startedAt                    int64
	// returned is the place of its last line, or -1; failed says with an error, undone that its transaction was not
	// known to be committed although it had returned without one.
	returned       int
	failed, undone bool
	// outcome is what the bus said of it, or "".
	outcome string
}

// delivered names a delivery.
type delivered struct{ event, handler string }

// Report is what is known of a fleet after its end.
type Report struct {
	t     *testing.T
	f     *Fleet
	found []string

	log        []Entry
	torn       int
	attempts   []*attempt
	byDelivery map[delivered][]*attempt
	claims     map[delivered][]claimed
	// leases has for each claim the places in the log and what was proven there:
	// its lease lasts until then at least.
	leases map[held][]proof
	// last is the place of the last line of each process.
	last map[string]int
	// stopping are the processes that were asked to end.
	stopping map[string]bool
	// lost counts leases that ran out although the process lived, lostLeases has
	// them: also those of claims whose handler had not started.
	lost       int
	lostLeases map[held]bool

	// kept is what is in the database, events has its events by id.
	kept    Contents
	events  map[string]*StoredEvent
	orders  map[string]bool
	effects map[string]int
}

// held names the claim of a delivery by a process.
type held struct {
	process, event, handler string
	attempt                 int
}

type proof struct {
	place int
	until int64
}

// claimed is one delivery of one claim, and the time that the claim gave.
type claimed struct {
	Taken
	process string
	now     int64
}

// NewReport compares the log of the fleet with what was found in its database.
func NewReport(t *testing.T, f *Fleet, kept Contents) *Report {
	t.Helper()
	r := newReport(t, f, kept)
	r.log, r.torn = ReadLog(t, f.log)
	r.read()
	return r
}

func newReport(t *testing.T, f *Fleet, kept Contents) *Report {
	t.Helper()
	r := &Report{
		t: t, f: f, kept: kept,
		byDelivery: make(map[delivered][]*attempt), claims: make(map[delivered][]claimed),
		leases: make(map[held][]proof), lostLeases: make(map[held]bool), last: make(map[string]int),
		stopping: make(map[string]bool), events: make(map[string]*StoredEvent),
		orders: make(map[string]bool), effects: make(map[string]int),
	}
	r.index()
	return r
}

// Lost is how many leases ran out in processes that lived.
func (r *Report) Lost() int { return r.lost }

// Executions returns how often each delivery was executed, by event and handler.
func (r *Report) Executions() map[[2]string]int {
	counts := make(map[[2]string]int, len(r.byDelivery))
	for d, list := range r.byDelivery {
		counts[[2]string{d.event, d.handler}] = len(list)
	}
	return counts
}

func (r *Report) report(format string, args ...any) {
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

// read reads the log.
func (r *Report) read() {
	// Executions of one attempt in one process, which there are several of when
	// its claim was released in between. What is said is of the oldest one of
	// which it has not been said.
	same := make(map[attempt][]*attempt)
	nameOf := func(e Entry) attempt {
		return attempt{process: e.Process, event: e.Event, handler: e.Handler, number: e.Attempt}
	}
	oldest := func(e Entry, said func(*attempt) bool) *attempt {
		for _, a := range same[nameOf(e)] {
			if !said(a) {
				return a
			}
		}
		return nil
	}
	for place, e := range r.log {
		r.last[e.Process] = place
		switch e.What {
		case SaidStopping:
			r.stopping[e.Process] = true
		case SaidStart:
			a := &attempt{
				process: e.Process, event: e.Event, handler: e.Handler, key: e.Key, sequence: e.Sequence, number: e.Attempt,
				started: place, startedAt: e.At, returned: -1,
			}
			same[nameOf(e)] = append(same[nameOf(e)], a)
			r.attempts = append(r.attempts, a)
			d := delivered{e.Event, e.Handler}
			r.byDelivery[d] = append(r.byDelivery[d], a)
		case SaidEnd:
			if a := oldest(e, func(a *attempt) bool { return a.returned >= 0 }); a != nil {
				a.returned, a.failed = place, e.Text != ""
			}
		case SaidUndone:
			for _, a := range r.byDelivery[delivered{e.Event, e.Handler}] {
				a.undone = a.undone || a.process == e.Process && a.returned >= 0
			}
		case SaidSucceeded, SaidRetried, SaidBuried, SaidReleased, SaidLost:
			if e.What == SaidLost {
				r.lost++
				r.lostLeases[held{e.Process, e.Event, e.Handler, e.Attempt}] = true
			}
			// There is none when the claim ended before the handler started.
			if a := oldest(e, func(a *attempt) bool { return a.outcome != "" }); a != nil {
				a.outcome = e.What
			}
		case SaidClaim:
			for _, one := range e.Claims {
				d := delivered{one.Event, one.Handler}
				r.claims[d] = append(r.claims[d], claimed{one, e.Process, e.Now})
				// A claim renews a lease of which a third has passed.
				l := held{e.Process, one.Event, one.Handler, one.Attempt}
				r.leases[l] = append(r.leases[l], proof{place, e.Now + r.f.Lease.Milliseconds()*2/3})
			}
		case SaidRenewal:
			for _, one := range e.Claims {
				for _, c := range r.claims[delivered{one.Event, one.Handler}] {
					if c.process == e.Process && c.Generation == one.Generation {
						l := held{e.Process, one.Event, one.Handler, c.Attempt}
						r.leases[l] = append(r.leases[l], proof{place, e.Now + r.f.Lease.Milliseconds()})
					}
				}
			}
		}
	}
}

// Check reports every violation.
func (r *Report) Check() {
	r.t.Helper()
	const most = 5 // of each check are shown
	for _, check := range []func(){
		r.checkRest, r.checkRows, r.checkPublishes, r.checkHandled, r.checkEffects, r.checkDuplicates,
		r.checkOrder, r.checkCharges, r.checkTrouble, r.checkRecovery,
	} {
		check()
		for _, violation := range r.found[:min(most, len(r.found))] {
			r.t.Error(violation)
		}
		if more := len(r.found) - most; more > 0 {
			r.t.Errorf("and %d more of the kind", more)
		}
		r.found = nil
	}
	placed := 0
	for _, e := range r.events {
		if e.Type == OrderPlaced.Name() {
			placed++
		}
	}
	repeated := 0
	for _, list := range r.byDelivery {
		repeated += len(list) - 1
	}
	r.t.Logf("%d events, %d of them orders; %d executions, %d of them repeated; %d leases ran out in living processes; %d torn lines",
		len(r.events), placed, len(r.attempts), repeated, r.lost, r.torn)
}

// provenLease is until when the lease of an execution lasts at least, as far as
// the log says before a place.
func (r *Report) provenLease(a *attempt, before int) time.Time {
	until := int64(0)
	for _, p := range r.leases[held{a.process, a.event, a.handler, a.number}] {
		if p.place < before {
			until = max(until, p.until)
		}
	}
	return time.UnixMilli(until)
}
