package sqlite_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// running is a process of this test binary that runs a program.
type running struct {
	program
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer
	// said has what it says when its log is its standard output.
	said chan entry
	// ended is closed when the process is gone; err is how it ended.
	ended chan struct{}
	err   error
}

// launch starts a program. It ends with the test at the latest.
func launch(t *testing.T, p program) *running {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatalf("program: %v", err)
	}
	r := &running{program: p, cmd: exec.CommandContext(t.Context(), os.Args[0]), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), programVariable+"="+string(text), "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	r.cmd.Stderr = &r.stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatalf("pipe: %v", err)
	}
	var out io.Reader
	if p.Log == "" {
		if out, err = r.cmd.StdoutPipe(); err != nil {
			t.Fatalf("pipe: %v", err)
		}
		r.said = make(chan entry, 10_000)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
	go r.wait(out)
	return r
}

func (r *running) wait(out io.Reader) {
	defer close(r.ended)
	if out != nil {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e entry
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				r.said <- e
			}
		}
		close(r.said)
	}
	r.err = r.cmd.Wait()
}

// end asks the program to end.
func (r *running) end() {
	_ = r.in.Close() // It may be gone already.
}

// give gives a held handler its turn.
func (r *running) give(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(r.in, "go\n"); err != nil {
		t.Fatalf("give %s its turn: %v", r.Name, err)
	}
}

func (r *running) kill() {
	_ = r.cmd.Process.Kill() // It may be gone already.
}

// killed reports whether an ended process was killed by a signal.
func (r *running) killed() bool {
	var exit *exec.ExitError
	return errors.As(r.err, &exit) && exit.ExitCode() == -1
}

// crashed reports whether an ended process has killed itself.
func (r *running) crashed() bool { return strings.Contains(r.stderr.String(), crashMark) }

// problem is what is wrong with how a process ended.
func (r *running) problem() string {
	text := r.stderr.String()
	switch {
	case strings.Contains(text, "DATA RACE"):
		return text
	case r.err != nil && !r.killed():
		return r.err.Error() + ": " + text
	default:
		return ""
	}
}

// mustEnd ends a program that is to end well.
func (r *running) mustEnd(t *testing.T) {
	t.Helper()
	r.end()
	select {
	case <-r.ended:
	case <-time.After(testPatience):
		t.Fatalf("%s does not end", r.Name)
	}
	if r.err != nil {
		t.Fatalf("%s: %v: %s", r.Name, r.err, r.stderr.String())
	}
}

// testPatience is when a test gives up on what should have happened long ago.
const testPatience = 2 * time.Minute

// hear waits for an entry that the process says.
func (r *running) hear(t *testing.T, what string, matches func(entry) bool) {
	t.Helper()
	patience := time.After(testPatience)
	for {
		select {
		case e, ok := <-r.said:
			if !ok {
				<-r.ended
				t.Fatalf("%s ended before it said %q: %v: %s", r.Name, what, r.err, r.stderr.String())
			}
			if e.What == what && (matches == nil || matches(e)) {
				return
			}
		case <-patience:
			t.Fatalf("%s never said %q", r.Name, what)
		}
	}
}
