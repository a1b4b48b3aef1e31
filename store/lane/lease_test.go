package lane_test

import (
	"testing"

	"github.com/relaybus-go/relaybus/store/lane"
)

// S7 F16: a lease that is handed out runs for at least nineteen twentieths of its length, and is never shortened; one
// that nothing is handed out under is renewed when a third has passed.
func TestLease(t *testing.T) {
	t.Parallel()
	const now, length = 1000, 300
	for _, test := range []struct {
		lease, until int64
		aged         bool
	}{
		{0, now + length, true},
		{now + 199, now + length, true},
		{now + 200, now + length, false},
		{now + 284, now + length, false},
		{now + 285, now + 285, false},
		{now + length, now + length, false},
		{now + 5*length, now + 5*length, false},
	} {
		if got := lane.LeaseUntil(test.lease, now, length); got != test.until {
			t.Errorf("a lease until %d is to run until %d, want %d", test.lease, got, test.until)
		}
		if got := lane.LeaseAged(test.lease, now, length); got != test.aged {
			t.Errorf("a lease until %d is aged: %v, want %v", test.lease, got, test.aged)
		}
	}
}
