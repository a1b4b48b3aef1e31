package postgres_test

import (
	"os"
	"testing"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/store/storetest"
)

var cluster pgserver.Cluster //nolint:gochecknoglobals // Go has no other way from TestMain to the tests.

func TestMain(m *testing.M) {
	if storetest.IsWorker() {
		os.Exit(storetest.WorkerMain(conformanceWorker()))
	}
	if fleettest.IsProgram() {
		os.Exit(fleettest.Main(openShop))
	}
	os.Exit(cluster.Run(m))
}
