package pgserver_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

// A test process that is killed takes its server with it, and the next server's start removes the directory.
func TestProcessIsKilled(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	address := lines.Text()
	lines.Scan()
	dir := filepath.Dir(lines.Text())
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if address == "" {
		t.Fatal("the process has started no server")
	}

	await(t, "the server's end", func() bool {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			return false
		}
		_, err = os.Stat(filepath.Join(dir, "data", "postmaster.pid")) // what it removes last
		return os.IsNotExist(err)
	})
	longAgo := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir, longAgo, longAgo); err != nil {
		t.Fatal(err)
	}
	bouncer(t, shared(t), pgserver.PgBouncerOptions{})
	// It may have found that another test's server is about to remove the directory.
	await(t, "the directory's end", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}

// await returns when the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("still waiting for %s", what)
		}
	}
}
