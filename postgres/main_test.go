package postgres_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/store/storetest"
)

// cluster makes a database for each test. What it commits need not survive a power
// cut; processes that are killed leave what they wrote to the operating system.
//
//nolint:gochecknoglobals // Go has no other way from TestMain to the tests.
var cluster = pgserver.Cluster{Options: pgserver.Options{
	Settings: map[string]string{"fsync": "off", "full_page_writes": "off"},
}}

func TestMain(m *testing.M) {
	if storetest.IsWorker() {
		os.Exit(storetest.WorkerMain(conformanceWorker()))
	}
	if fleettest.IsProgram() {
		os.Exit(fleettest.Main(openShop))
	}
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(cluster.Run(m))
}
