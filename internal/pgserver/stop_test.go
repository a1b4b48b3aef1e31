package pgserver_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

// Whatever stops it, the server comes back on its port with what was committed, and without what was not.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	address := server.Address()
	open(t, server.URL("postgres")).query(t, "CREATE TABLE facts (n int)")

	var want []string
	for n, stop := range []func() error{
		func() error { return nil }, // Restart has to do it
		func() error { return server.Stop(t.Context(), pgserver.Fast) },
		func() error { return server.Kill(t.Context()) },
	} {
		committed := string(rune('1' + n))
		client := open(t, server.URL("postgres"))
		client.query(t, "INSERT INTO facts VALUES ("+committed+")")
		client.query(t, "BEGIN")
		client.query(t, "INSERT INTO facts VALUES (99)")
		want = append(want, committed)

		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n > 0 && server.Running() {
			t.Fatal("the server runs on")
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := client.try("COMMIT"); err == nil {
			t.Error("a session outlived its server")
		}
		if got := open(t, server.URL("postgres")).query(t, "SELECT n FROM facts ORDER BY n"); !slices.Equal(got, want) {
			t.Errorf("the facts are %q, want %q", got, want)
		}
	}
	if !server.Running() || server.Address() != address {
		t.Errorf("running %t on %s, want it on %s", server.Running(), server.Address(), address)
	}
}

// A smart stop waits for the client, until its context ends; a fast one does not.
func TestServerStopsSmartly(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	client := open(t, server.URL("postgres"))
	givenUp, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Stop(givenUp, pgserver.Smart); !errors.Is(err, context.Canceled) {
		t.Fatalf("Stop with a client: %v", err)
	}
	client.query(t, "SELECT 1")

	smart := make(chan error, 1)
	go func() { smart <- server.Stop(t.Context(), pgserver.Smart) }()
	if err := client.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-smart; err != nil || server.Running() {
		t.Errorf("Stop after the client has left: %v, running %t", err, server.Running())
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	open(t, server.URL("postgres"))
	if err := server.Stop(givenUp, pgserver.Smart); err == nil {
		t.Error("a smart stop has not waited")
	}
	if err := server.Stop(t.Context(), pgserver.Fast); err != nil || server.Running() {
		t.Errorf("Stop in mode fast: %v, running %t", err, server.Running())
	}
}

func TestMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[pgserver.Mode]string{
		pgserver.Smart: "smart", pgserver.Fast: "fast", pgserver.Immediate: "immediate",
	} {
		if mode.String() != want {
			t.Errorf("mode %d is called %s, want %s", mode, mode, want)
		}
	}
}
