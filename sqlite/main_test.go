package sqlite_test

import (
	"os"
	"testing"

	"github.com/relaybus-go/relaybus/store/storetest"
)

func TestMain(m *testing.M) {
	if storetest.IsWorker() {
		os.Exit(storetest.WorkerMain(conformanceWorker()))
	}
	os.Exit(m.Run())
}
