package pgserver_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

// childVariable makes the test binary a process that starts a server and waits to be killed.
const childVariable = "RELAYBUS_PGSERVER_TEST_CHILD"

//nolint:gochecknoglobals // Go has no other way from TestMain to the tests.
var cluster pgserver.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	os.Exit(cluster.Run(m))
}

// child tells its parent about the server, and never ends by itself.
func child() int {
	server, err := pgserver.Start(context.Background(), pgserver.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(server.Address())
	fmt.Println(server.LogFile())
	select {}
}

// start returns a server of the test's own.
func start(t *testing.T, settings map[string]string) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(t.Context(), pgserver.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// shared returns the URL of a fresh database on the shared server.
func shared(t *testing.T) string {
	t.Helper()
	admin, err := cluster.AdminURL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := pgserver.NewDatabaseName()
	open(t, admin).query(t, "CREATE DATABASE "+name)
	database, err := cluster.URL(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return database
}
