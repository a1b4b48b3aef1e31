package ormtest_test

import (
	"os"
	"testing"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

// cluster makes a database for each test. What it commits need not survive a power
// cut; processes that are killed leave what they wrote to the operating system.
//
//nolint:gochecknoglobals // Go has no other way from TestMain to the tests.
var cluster = pgserver.Cluster{Options: pgserver.Options{
	Settings: map[string]string{"fsync": "off", "full_page_writes": "off"},
}}

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }
