package fleettest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Variables of a soak: how long it goes on, and from which seed.
const (
	SoakVariable = "RELAYBUS_SOAK"
	SeedVariable = "RELAYBUS_SEED"
)

// Soak runs rounds, each from another seed, until the time in [SoakVariable] has passed: one without it. [SeedVariable]
// repeats what each place of a fleet draws; who gets where first is up to the machine.
func Soak(t *testing.T, round func(seed uint64)) {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(SeedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedVariable, err)
		}
	}
	var soak time.Duration
	if text := os.Getenv(SoakVariable); text != "" {
		var err error
		if soak, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", SoakVariable, err)
		}
	}
	began := time.Now()
	for n := uint64(0); !t.Failed() && (n == 0 || time.Since(began) < soak); n++ {
		round(seed + n)
	}
}
