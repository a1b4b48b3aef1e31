package simulation_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// normalSeeds is how many seeds a normal test run plays.
	normalSeeds = 2000
	chunk       = 100
)

// TestSimulation plays seeds: see the package comment for how to play others.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if text := os.Getenv("RELAYBUS_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("RELAYBUS_SEED: %v", err)
		}
		play(t, seed)
		return
	}
	if text := os.Getenv("RELAYBUS_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("RELAYBUS_SOAK: %v", err)
		}
		soak(t, d)
		return
	}
	for first := uint64(1); first <= seeds(); first += chunk {
		t.Run(fmt.Sprintf("from seed %d", first), func(t *testing.T) {
			t.Parallel()
			for seed := first; seed < first+chunk; seed++ {
				play(t, seed)
			}
		})
	}
}

// seeds is how many to play: RELAYBUS_SEEDS, or the normal number.
func seeds() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("RELAYBUS_SEEDS"), 10, 64); err == nil {
		return n
	}
	return normalSeeds
}

// soak plays new seeds until the time is over.
func soak(t *testing.T, d time.Duration) {
	t.Helper()
	began := time.Now()
	for lane := range uint64(2) {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			seed := uint64(began.UnixNano())&^1 | lane
			n := 0
			for ; time.Since(began) < d && !t.Failed(); seed += 2 {
				play(t, seed)
				n++
			}
			t.Logf("%d seeds up to %d", n, seed)
		})
	}
}

func play(t *testing.T, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var trace func(string, ...any)
		if os.Getenv("RELAYBUS_TRACE") != "" {
			trace = t.Logf
		}
		w := run(newPlan(seed), nil, trace)
		found := w.history.found()
		for _, violation := range found {
			t.Errorf("seed %d: %s", seed, violation)
		}
		if len(found) > 0 {
			t.Errorf("again with: RELAYBUS_SEED=%d go test -race -run TestSimulation ./internal/simulation", seed)
		}
		if os.Getenv("RELAYBUS_SEED") != "" {
			t.Logf("%d events, %d executions, %d of them repeated, %d effects, %d claims lost to a takeover",
				w.history.committed, w.history.executions, w.history.repeats, w.history.effects, w.history.takeovers)
		}
	})
}
