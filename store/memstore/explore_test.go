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

// budget returns how long a check may run, from RELAYBUS_SOAK, or zero.
func budget(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("RELAYBUS_SOAK")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("RELAYBUS_SOAK: %v", err)
	}
	return d
}

// The lane protocol holds in every interleaving of two workers within the
// scenarios (I1 to I6).
func TestProtocol(t *testing.T) {
	t.Parallel()
	replay, schedule, _ := strings.Cut(os.Getenv(replayVariable), "/")
	for _, sc := range scenarios() {
		if replay != "" && replay != sc.name {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			open := explorer(t.Context(), sc)
			if replay != "" {
				choices, err := explore.ParseSchedule(schedule)
				if err != nil {
					t.Fatal(err)
				}
				trace, err := explore.Replay(open, choices)
				t.Log(strings.Join(trace, "\n"))
				if err != nil {
					t.Error(err)
				}
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), probeTime())
			defer cancel()
			began := time.Now()
			r := explore.Run(ctx, open)
			t.Log(time.Since(began), r.States, r.Executions)
			if r.Failure != nil {
				t.Fatalf("%v\nreplay with %s=%q", r.Failure, replayVariable,
					sc.name+"/"+explore.FormatSchedule(r.Failure.Schedule))
			}
			if !r.Complete || r.Finals == 0 {
				t.Errorf("the exploration is not complete: %+v", r)
			}
			t.Logf("%d states, %d executions, %d of them to their end, up to %d steps", r.States, r.Executions, r.Finals, r.Depth)
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
			if ids, _ := w.claimable(n.store.worker(n.name).current(), millis(w.now())); len(ids) > 0 {
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

func probeTime() time.Duration {
	d, err := time.ParseDuration(os.Getenv("PROBE"))
	if err != nil {
		return time.Hour
	}
	return d
}
