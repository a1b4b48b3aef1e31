package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/internal/explore"
	"github.com/relaybus-go/relaybus/store"
)

// replayVariable names a schedule to replay: "<scenario>/<choices>", as a
// failed check prints it.
const replayVariable = "RELAYBUS_REPLAY"

// explored is a world as the explorer wants it.
type explored struct {
	*world
	fingerprinter
}

func (e explored) Fingerprint() uint64 { return e.print(e.world) }

func explorer(ctx context.Context, sc scenario) func() explore.System {
	f := fingerprinter{maphash.MakeSeed()}
	return func() explore.System { return explored{openWorld(ctx, sc), f} }
}

// The lane protocol holds in every interleaving of two workers within the
// scenarios (I1 to I6).
func TestProtocol(t *testing.T) {
	t.Parallel()
	list := scenarios()
	if text := os.Getenv(replayVariable); text != "" {
		name, schedule, _ := strings.Cut(text, "/")
		for _, sc := range list {
			list = append(list, sc.wider())
		}
		i := slices.IndexFunc(list, func(sc scenario) bool { return sc.name == name })
		if i < 0 {
			t.Fatalf("%s: there is no scenario %q", replayVariable, name)
		}
		replayProtocol(t, explorer(t.Context(), list[i]), schedule)
		return
	}
	for _, sc := range list {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			r := explore.Run(t.Context(), explorer(t.Context(), sc))
			report(t, sc, r)
			if !r.Complete || r.Finals == 0 {
				t.Errorf("the exploration is not complete: %+v", r)
			}
		})
	}
}

// Wider scenarios for as long as RELAYBUS_SOAK says, for a moment without it.
func TestProtocolSoak(t *testing.T) {
	t.Parallel()
	duration := time.Second
	if text := os.Getenv("RELAYBUS_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("RELAYBUS_SOAK: %v", err)
		}
		duration = d
	}
	list := scenarios()
	for _, sc := range list {
		sc = sc.wider()
		ctx, cancel := context.WithTimeout(t.Context(), duration/time.Duration(len(list)))
		r := explore.Run(ctx, explorer(t.Context(), sc))
		cancel()
		report(t, sc, r)
	}
}

// report logs what was covered, and fails the test if a violation was found.
func report(t *testing.T, sc scenario, r explore.Result) {
	t.Helper()
	if r.Failure != nil {
		t.Errorf("%s: %v\nreplay with %s=%q", sc.name, r.Failure, replayVariable,
			sc.name+"/"+explore.FormatSchedule(r.Failure.Schedule))
	}
	t.Logf("%s: %d states, %d executions, %d of them to their end, up to %d steps, complete: %t",
		sc.name, r.States, r.Executions, r.Finals, r.Depth, r.Complete)
}

// replayProtocol runs one schedule and logs its steps.
func replayProtocol(t *testing.T, open func() explore.System, schedule string) {
	t.Helper()
	choices, err := explore.ParseSchedule(schedule)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := explore.Replay(open, choices)
	t.Log(strings.Join(trace, "\n"))
	if err != nil {
		t.Error(err)
	}
}

// The check finds each fault that is planted in the protocol, so it would find
// them if somebody made them.
func TestProtocolFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fault, scenario string
		plant           func(h *hooks)
		// want begins the violation.
		want string
	}{
		{
			"claim generation dropped from the fence", "retry and repeated settlement",
			func(h *hooks) { h.ignoreGeneration = true }, "I5",
		},
		{
			"bound raised although hinted during the reading", "late commits beside one worker",
			func(h *hooks) { h.raiseHinted = true }, "I6",
		},
		{
			"ended deliveries offered to the claim that was reading", "completion during a claim",
			func(h *hooks) { h.forgetEnded = true }, "which is not its own",
		},
		{
			"takeover keeps the claim generation", "takeover",
			func(h *hooks) { h.keepGeneration = true }, "I3",
		},
		{
			"lanes taken and claims recorded after a takeover", "takeover",
			func(h *hooks) { h.ignoreLease = true }, "an owner that does not know it",
		},
		{
			"claims recorded over an operator's change", "operator beside a claim",
			func(h *hooks) { h.ignoreEdits = true }, "I4",
		},
	} {
		t.Run(test.fault, func(t *testing.T) {
			t.Parallel()
			list := scenarios()
			i := slices.IndexFunc(list, func(sc scenario) bool { return sc.name == test.scenario })
			sc := list[i]
			sc.plant = test.plant
			open := explorer(t.Context(), sc)
			r := explore.Run(t.Context(), open)
			if r.Failure == nil {
				t.Fatalf("not found in %d states", r.States)
			}
			t.Logf("found after %d states: %v", r.States, r.Failure.Err)
			if !strings.Contains(r.Failure.Err.Error(), test.want) {
				t.Errorf("found %v, want a violation with %q", r.Failure.Err, test.want)
			}
			if _, err := explore.Replay(open, r.Failure.Schedule); err == nil || err.Error() != r.Failure.Err.Error() {
				t.Errorf("the replay gave %v, want %v", err, r.Failure.Err)
			}
		})
	}
}

// Finish checks that a run without further faults ends everything: first by the
// workers that are left, then by a new one after all leases have expired.
func (w *world) Finish() error {
	w.free, w.replayed = true, false
	if !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.dead }) {
		for busy := true; busy; {
			busy = false
			for _, n := range w.nodes {
				took := n.claimOnce()
				busy = busy || took > 0
				w.finishAll(n)
			}
			if w.failure != nil {
				return w.failure
			}
		}
		w.last = w.facts()
		for _, n := range w.nodes {
			if ids, _ := w.claimable(w.last, n.store.worker(n.name).current(), millis(w.now())); len(ids) > 0 {
				return fmt.Errorf("I6: %v stay behind although both workers live", ids)
			}
		}
	}
	for _, n := range w.nodes {
		n.crash()
	}
	last := &node{name: "last", world: w, store: w.outsider.Instance()}
	last.store.hooks = w.outsider.hooks
	w.nodes = append(w.nodes, last)
	for range 2 {
		w.clock += checkTick
		for last.claimOnce() > 0 {
			w.finishAll(last)
		}
	}
	if w.failure != nil {
		return w.failure
	}
	w.last = w.facts()
	for id, r := range w.last.rows {
		if !r.dead && w.first(id, w.last) == nil {
			return fmt.Errorf("I6: %v is never done: %+v", id, r)
		}
	}
	return w.check("drained")
}

// finishAll completes what the node runs.
func (w *world) finishAll(n *node) {
	for _, j := range n.jobs {
		valid := w.facts().valid(j)
		ok, err := n.store.Settle(w.ctx, n.name,
			[]store.Settlement{{Lease: j.claimed.Lease, Action: store.Complete}}, w.now())
		if err != nil || ok[0] != valid {
			w.failf("I5: %s: completion of %v: %v, %w, want %t", n.name, j.id(), ok, err, valid)
			return
		}
		if valid {
			w.completed[j.id()]++
		}
	}
	n.jobs = nil
}
