package pgserver_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

func TestClusterIsShared(t *testing.T) {
	t.Parallel()
	var own pgserver.Cluster
	own.Options.Settings = map[string]string{"max_connections": "19"}
	urls := make([]string, 3)
	var callers sync.WaitGroup
	for i := range urls {
		callers.Go(func() {
			var err error
			if urls[i], err = own.URL(t.Context(), "postgres"); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if len(slices.Compact(urls)) != 1 {
		t.Fatalf("the callers got servers of their own: %q", urls)
	}
	client := open(t, urls[0])
	if got := client.query(t, "SHOW max_connections"); !slices.Equal(got, []string{"19"}) {
		t.Errorf("max_connections is %q, want 19", got)
	}
	if admin, err := own.AdminURL(t.Context()); err != nil || admin != urls[0] {
		t.Errorf("the admin's URL is %q, %v, want %q", admin, err, urls[0])
	}

	if code := own.Run(tests(3)); code != 3 {
		t.Errorf("the exit code is %d, want 3, the tests' own", code)
	}
	if _, err := client.try("SELECT 1"); err == nil {
		t.Error("the server outlives its cluster")
	}
	if _, err := own.URL(t.Context(), "postgres"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the URL of a closed cluster: %v", err)
	}
}

// tests stands in for *testing.M.
type tests int

func (code tests) Run() int { return int(code) }

// A test that was given up does not spoil the cluster for the others; a server that can't start does, at once.
func TestClusterDoesNotStart(t *testing.T) {
	t.Parallel()
	var own pgserver.Cluster
	own.Options.Settings = map[string]string{"no_such_setting": "1"}
	givenUp, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := own.URL(givenUp, "postgres"); !errors.Is(err, context.Canceled) {
		t.Errorf("the URL for a test that was given up: %v", err)
	}
	_, first := own.URL(t.Context(), "postgres")
	if first == nil || !strings.Contains(first.Error(), "no_such_setting") {
		t.Fatalf("the URL of a server that can't start: %v", first)
	}
	if _, err := own.URL(t.Context(), "postgres"); !errors.Is(err, first) {
		t.Errorf("the second error is %v, want the first one again", err)
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}
}

// The environment's server is used as it is. No test in parallel: they share the environment.
func TestClusterOfTheEnvironment(t *testing.T) {
	t.Setenv(pgserver.URLVariable, "postgres://ann@db.example:5433/main?sslmode=require")
	var given pgserver.Cluster
	if got, err := given.URL(t.Context(), "a b"); err != nil || got != "postgres://ann@db.example:5433/a%20b?sslmode=require" {
		t.Errorf("the URL is %q, %v", got, err)
	}
	if got, err := given.AdminURL(t.Context()); err != nil || got != "postgres://ann@db.example:5433/main?sslmode=require" {
		t.Errorf("the admin's URL is %q, %v", got, err)
	}
	if err := given.Close(); err != nil {
		t.Error(err)
	}

	for _, bad := range []string{"host=db.example password=secret", "postgres://secret@:5433/", "http://secret/", "postgres://ann:secret@%zz/"} {
		t.Setenv(pgserver.URLVariable, bad)
		var broken pgserver.Cluster
		if _, err := broken.URL(t.Context(), "main"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("the error for %q: %v", bad, err)
		}
	}
}

func TestNewDatabaseName(t *testing.T) {
	t.Parallel()
	name, other := pgserver.NewDatabaseName(), pgserver.NewDatabaseName()
	if name == other || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		t.Errorf("the names are %q and %q", name, other)
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"postgres://ann@db.example:5433/main": "db.example:5433",
		"postgresql://db.example/main":        "db.example:5432",
		"postgres://[::1]/main":               "[::1]:5432",
	} {
		if got, err := pgserver.Address(given); err != nil || got != want {
			t.Errorf("the address in %q is %q, %v, want %q", given, got, err, want)
		}
	}
	if got, err := pgserver.Address("db.example:5433"); err == nil {
		t.Errorf("an address that is no URL gives %q", got)
	}
}
