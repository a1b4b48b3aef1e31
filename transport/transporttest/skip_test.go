package transporttest_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/transport/transporttest"
)

const skipVariable = "TRANSPORTTEST_SKIP"

// TestSkip runs on a broker that can't freeze and says so, unless
// TestSkipIsExact asks for something else.
func TestSkip(t *testing.T) {
	t.Parallel()
	skip := []string{
		"F65SendToAFrozenBroker", "F65ConnectToAFrozenBroker", "F41SendsGoOnWhenTheBrokerThaws", "F41CloseWhileTheBrokerIsFrozen",
	}
	if list, ok := os.LookupEnv(skipVariable); ok {
		skip = strings.Fields(list)
	}
	transporttest.Run(t, transporttest.Backend{
		Bubble: true,
		Skip:   skip,
		Open: func(*testing.T) transporttest.Broker {
			b := broker(mutant{})
			b.Freeze, b.Thaw = nil, nil
			return b
		},
	})
}

func TestSkipIsExact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, skip, pattern, want string }{
		{"a fault is missing and not named", "", "^TestSkip$/^F65SendToAFrozenBroker$", "lacks a fault"},
		{"a case that could run is named", "F06BeforeConnect", "^TestSkip$/^F06BeforeConnect$", "has the faults"},
		{"no such case", "F00", "^TestSkip$/^F06BeforeConnect$", `"F00", which is no case`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			output, err := run(t, tt.pattern, skipVariable+"="+tt.skip)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(output, tt.want) {
				t.Errorf("got %v, want a failure that says %q:\n%s", err, tt.want, output)
			}
		})
	}
}
