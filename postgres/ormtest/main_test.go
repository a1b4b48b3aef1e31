package ormtest_test

import (
	"os"
	"testing"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

var cluster pgserver.Cluster //nolint:gochecknoglobals // Go has no other way from TestMain to the tests.

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }
