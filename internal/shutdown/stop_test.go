package shutdown_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/relaybus-go/relaybus"
)

// scenario is one awkward moment. It leaves a stopped bus.
type scenario struct {
	name  string
	round func(r *rig)
}

func scenarios() []scenario {
	return slices.Concat(plainScenarios(), startScenarios(), handlerScenarios(), storeScenarios(), transportScenarios())
}

const (
	// virtualRounds and realRounds are per scenario: more than 1,000 and some
	// hundred in all.
	virtualRounds = 30
	realRounds    = 6
)

// TestStop plays every scenario in virtual time (F06).
func TestStop(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= virtualRounds && !t.Failed(); seed++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, seed, true)
					defer r.letGo()
					s.round(r)
					r.letGo()
					r.wantGoroutines(0)
					if t.Failed() {
						t.Logf("in round %d", seed)
					}
				})
			}
		})
	}
}

// TestStopInRealTime plays them without a bubble.
func TestStopInRealTime(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(realRounds) {
				t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
					t.Parallel()
					r := newRig(t, seed, false)
					defer r.letGo()
					s.round(r)
				})
			}
		})
	}
}

// TestRounds keeps the promise of the constants.
func TestRounds(t *testing.T) {
	t.Parallel()
	if n := len(scenarios()); n*virtualRounds < 1000 || n*realRounds < 200 {
		t.Errorf("%d scenarios are %d and %d rounds", n, n*virtualRounds, n*realRounds)
	}
}

// wantStillRunning checks an error of Stop that names handlers.
func wantStillRunning(r *rig, err error, ids ...string) {
	r.Helper()
	var stop *relaybus.StopError
	if !errors.As(err, &stop) {
		r.Errorf("Stop returned %v, want a *StopError", err)
		return
	}
	slices.Sort(stop.Running)
	if !slices.Equal(stop.Running, ids) {
		r.Errorf("Stop names %q as still running, want %q: %v", stop.Running, ids, err)
	}
}

func wantNil(r *rig, what string, err error) {
	r.Helper()
	if err != nil {
		r.Errorf("%s: %v", what, err)
	}
}

func wantIs(r *rig, what string, err, class error) {
	r.Helper()
	if !errors.Is(err, class) {
		r.Errorf("%s returned %v, want %v", what, err, class)
	}
}
