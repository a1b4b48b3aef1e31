package main

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build compiles the command, so that the tests run what a user runs.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "orders")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

func runCommand(t *testing.T, binary string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func contains(t *testing.T, output string, wanted ...string) {
	t.Helper()
	for _, text := range wanted {
		if !strings.Contains(output, text) {
			t.Errorf("output lacks %q:\n%s", text, output)
		}
	}
}

const happyEnd = "Nothing was lost, nothing was done twice, and each order's events came in order."

func TestStory(t *testing.T) {
	t.Parallel()
	output, err := runCommand(t, build(t))
	if err != nil {
		t.Fatalf("orders: %v\n%s", err, output)
	}
	contains(t, output,
		"failed: mail server: 451 try again later; again in 300ms",
		"o-3  (attempt 2)",
		"o-4  is dead: the order has no address",
		"dead: handler ship, order o-4, after 1 attempt(s): the order has no address",
		happyEnd)
	if strings.Contains(output, "o-5\n") || strings.Contains(output, "o-5  ") {
		t.Errorf("the rolled-back order left a trace:\n%s", output)
	}
}

func TestCrashAndGoOn(t *testing.T) {
	t.Parallel()
	binary := build(t)
	file := filepath.Join(t.TempDir(), "shop.db")

	output, err := runCommand(t, binary, "-db", file, "-crash")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the first run should have been killed, but ended with %v:\n%s", err, output)
	}
	contains(t, output, "the process kills itself")
	if strings.Contains(output, happyEnd) {
		t.Fatalf("the first run came to an end:\n%s", output)
	}

	output, err = runCommand(t, binary, "-db", file)
	if err != nil {
		t.Fatalf("second run: %v\n%s", err, output)
	}
	contains(t, output, "The file holds 4 orders of an earlier run", happyEnd)
}
