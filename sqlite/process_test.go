package sqlite_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
)

// Variables of the soak: how long it goes on, and from which seed.
const (
	soakVariable = "RELAYBUS_SOAK"
	seedVariable = "RELAYBUS_SEED"
)

// F22 I1–I6: four workers and two publishers on one file are killed two hundred
// times, at points in the store and in the code of the user, and at any moment.
// Nothing is lost, invented, doubled or reordered. With RELAYBUS_SOAK it begins
// again with a new file until that time has passed. RELAYBUS_SEED repeats what
// each place of the fleet draws; who gets where first is up to the machine.
func TestProcessSoak(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	var soak time.Duration
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if soak, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakVariable, err)
		}
	}
	began := time.Now()
	for round := uint64(0); !t.Failed() && (round == 0 || time.Since(began) < soak); round++ {
		processRound(t, seed+round)
	}
}

func processRound(t *testing.T, seed uint64) {
	t.Helper()
	f := newFleet(t, seed)
	cancel := f.limit()
	defer cancel()
	f.killInSetup()
	f.killAtWork()
	t.Log(f.table())
	for _, point := range slices.Concat(setupPoints(), workerPoints(), publisherPoints()) {
		if f.hits[point] < fleetHits {
			t.Errorf("%d processes were killed at %q, want %d", f.hits[point], point, fleetHits)
		}
	}
	if f.kills() < fleetKills {
		t.Errorf("%d kills, want %d", f.kills(), fleetKills)
	}
	if t.Failed() {
		return
	}
	s, err := sqlite.Open(f.path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	f.drain(s)
	r := newReport(t, f)
	r.read(s)
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	r.check()
}
