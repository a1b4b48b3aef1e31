package sqlite_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/store/storetest"
)

// roleVariable makes the test binary do one thing in a process of its own.
const roleVariable = "RELAYBUS_SQLITE_TEST_ROLE"

func TestMain(m *testing.M) {
	if storetest.IsWorker() {
		os.Exit(storetest.WorkerMain(conformanceWorker()))
	}
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role, os.Getenv(pathVariable)); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if fleettest.IsProgram() {
		os.Exit(fleettest.Main(openShop))
	}
	os.Exit(m.Run())
}

// process is the test binary in a role.
func process(t *testing.T, role, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, pathVariable+"="+path)
	return cmd
}
