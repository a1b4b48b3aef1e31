package sqlite_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
)

// walLimit is what the write-ahead log may grow to: the limit that the store
// sets, which is far above the size at which it is taken up.
const walLimit = 64 << 20

// attempt is one execution of a handler, with the places of its lines in the log.
type attempt struct {
	process, event, handler, key string
	sequence                     int64
	number                       int
	started                      int
	startedAt                    int64
	// returned is the place of its last line, or -1; failed says with an error.
	returned int
	failed   bool
	// outcome is what the bus said of it, or "".
	outcome string
}

// delivered names a delivery.
type delivered struct{ event, handler string }

// stored is an event in the file.
type storedEvent struct {
	eventType, key string
	sequence       int64
	of             order
	handlers       int
	// completed counts the completions that were recorded.
	completed int
	dead      []string
}

// report is what is known after the end.
type report struct {
	t     *testing.T
	f     *fleet
	found []string

	log        []entry
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

	events  map[string]*storedEvent
	orders  map[string]bool
	effects map[string]int
	left    map[string]int
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

// claimed is one delivery of one claim.
type claimed struct {
	taken
	process string
}

func newReport(t *testing.T, f *fleet) *report {
	t.Helper()
	return &report{
		t: t, f: f,
		byDelivery: make(map[delivered][]*attempt), claims: make(map[delivered][]claimed),
		leases: make(map[held][]proof), lostLeases: make(map[held]bool), last: make(map[string]int),
		stopping: make(map[string]bool), events: make(map[string]*storedEvent), orders: make(map[string]bool), effects: make(map[string]int),
		left: make(map[string]int),
	}
}

func (r *report) report(format string, args ...any) {
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

// read reads the log and the file.
func (r *report) read(s *sqlite.Store) {
	r.log, r.torn = readLog(r.t, r.f.log)
	// Executions of one attempt in one process, which there are several of when
	// its claim was released in between. What is said is of the oldest one of
	// which it has not been said.
	same := make(map[attempt][]*attempt)
	nameOf := func(e entry) attempt {
		return attempt{process: e.Process, event: e.Event, handler: e.Handler, number: e.Attempt}
	}
	oldest := func(e entry, said func(*attempt) bool) *attempt {
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
		case saidStopping:
			r.stopping[e.Process] = true
		case saidStart:
			a := &attempt{
				process: e.Process, event: e.Event, handler: e.Handler, key: e.Key, sequence: e.Sequence, number: e.Attempt,
				started: place, startedAt: e.At, returned: -1,
			}
			same[nameOf(e)] = append(same[nameOf(e)], a)
			r.attempts = append(r.attempts, a)
			d := delivered{e.Event, e.Handler}
			r.byDelivery[d] = append(r.byDelivery[d], a)
		case saidEnd:
			if a := oldest(e, func(a *attempt) bool { return a.returned >= 0 }); a != nil {
				a.returned, a.failed = place, e.Text != ""
			}
		case saidSucceeded, saidRetried, saidBuried, saidReleased, saidLost:
			if e.What == saidLost {
				r.lost++
				r.lostLeases[held{e.Process, e.Event, e.Handler, e.Attempt}] = true
			}
			// There is none when the claim ended before the handler started.
			if a := oldest(e, func(a *attempt) bool { return a.outcome != "" }); a != nil {
				a.outcome = e.What
			}
		case saidClaim:
			for _, one := range e.Claims {
				d := delivered{one.Event, one.Handler}
				r.claims[d] = append(r.claims[d], claimed{one, e.Process})
				// A claim renews a lease of which a third has passed.
				l := held{e.Process, one.Event, one.Handler, one.Attempt}
				r.leases[l] = append(r.leases[l], proof{place, e.Now + r.f.lease.Milliseconds()*2/3})
			}
		case saidRenewal:
			for _, one := range e.Claims {
				for _, c := range r.claims[delivered{one.Event, one.Handler}] {
					if c.process == e.Process && c.Generation == one.Generation {
						l := held{e.Process, one.Event, one.Handler, c.Attempt}
						r.leases[l] = append(r.leases[l], proof{place, e.Now + r.f.lease.Milliseconds()})
					}
				}
			}
		}
	}
	r.readFile(s)
}

func (r *report) readFile(s *sqlite.Store) {
	names := make(map[int64]string) // of sequences
	r.query(s, `SELECT seq, id, type, ifnull(key, ''), payload, total FROM relaybus_events`, func(scan func(...any) error) error {
		var e storedEvent
		var id string
		var payload []byte
		err := scan(&e.sequence, &id, &e.eventType, &e.key, &payload, &e.handlers)
		if err == nil {
			err = json.Unmarshal(payload, &e.of)
		}
		r.events[id], names[e.sequence] = &e, id
		return err
	})
	r.query(s, `SELECT j.value, count(*) FROM relaybus_completions c, json_each(c.list) j GROUP BY j.value`,
		func(scan func(...any) error) error {
			var sequence int64
			var n int
			err := scan(&sequence, &n)
			if e := r.events[names[sequence]]; e != nil {
				e.completed = n
			} else {
				r.report("I2: sequence %d was completed, and is no event", sequence)
			}
			return err
		})
	r.query(s, `SELECT d.event, h.id FROM relaybus_deliveries d JOIN relaybus_handlers h ON h.ref = d.handler WHERE d.state >= 2`,
		func(scan func(...any) error) error {
			var sequence int64
			var handler string
			err := scan(&sequence, &handler)
			if e := r.events[names[sequence]]; e != nil {
				e.dead = append(e.dead, handler)
			}
			return err
		})
	r.query(s, `SELECT id FROM orders`, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		r.orders[id] = true
		return err
	})
	r.query(s, `SELECT id, count(*) FROM effects GROUP BY id`, func(scan func(...any) error) error {
		var id string
		var n int
		err := scan(&id, &n)
		r.effects[id] = n
		return err
	})
	for what, text := range map[string]string{
		"unfinished deliveries":    `SELECT count(*) FROM relaybus_deliveries WHERE state < 2`,
		"deliveries that hold":     `SELECT count(*) FROM relaybus_deliveries WHERE state = 2`,
		"claim records":            `SELECT count(*) FROM relaybus_claims`,
		"owners":                   `SELECT count(*) FROM relaybus_owners`,
		"lanes that somebody has":  `SELECT count(*) FROM relaybus_lanes WHERE owner <> 0`,
		"deliveries without event": `SELECT count(*) FROM relaybus_deliveries WHERE event NOT IN (SELECT seq FROM relaybus_events)`,
		"integrity problems":       `SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'`,
	} {
		r.query(s, text, func(scan func(...any) error) error {
			var n int
			err := scan(&n)
			r.left[what] = n
			return err
		})
	}
}

func (r *report) query(s *sqlite.Store, text string, row func(scan func(...any) error) error) {
	r.t.Helper()
	rows, err := s.Reader().QueryContext(r.t.Context(), text)
	if err != nil {
		r.t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			r.t.Fatalf("%s: %v", text, err)
		}
	}
	if err := rows.Err(); err != nil {
		r.t.Fatalf("%s: %v", text, err)
	}
}

// check reports every violation.
func (r *report) check() {
	const most = 5 // of each check are shown
	for _, check := range []func(){
		r.checkRest, r.checkRows, r.checkPublishes, r.checkHandled, r.checkEffects, r.checkDuplicates,
		r.checkOrder, r.checkCharges, r.checkTrouble,
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
		if e.eventType == orderPlaced.Name() {
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

func (r *report) checkRest() {
	for _, what := range slices.Sorted(maps.Keys(r.left)) {
		if n := r.left[what]; n != 0 {
			r.report("I6: %d %s at the end", n, what)
		}
	}
	if r.torn > r.f.kills() {
		r.report("the log has %d torn lines after %d kills", r.torn, r.f.kills())
	}
	if r.f.wal > walLimit {
		r.report("F67: the write-ahead log grew to %d bytes", r.f.wal)
	}
}

// provenLease is until when the lease of an execution lasts at least, as far as
// the log says before a place.
func (r *report) provenLease(a *attempt, before int) time.Time {
	until := int64(0)
	for _, p := range r.leases[held{a.process, a.event, a.handler, a.number}] {
		if p.place < before {
			until = max(until, p.until)
		}
	}
	return time.UnixMilli(until)
}
