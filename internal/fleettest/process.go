package fleettest

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

// Process is a process of this test binary that runs a program.
type Process struct {
	Program
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer
	// said has what it says when its log is its standard output.
	said chan Entry
	// ended is closed when the process is gone; err is how it ended.
	ended chan struct{}
	err   error
}

// Launch starts a program. It ends with the test at the latest.
func Launch(t *testing.T, p Program) *Process {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatalf("program: %v", err)
	}
	r := &Process{Program: p, cmd: exec.CommandContext(t.Context(), os.Args[0]), ended: make(chan struct{})}
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
		r.said = make(chan Entry, 10_000)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
	go r.wait(out)
	return r
}

func (r *Process) wait(out io.Reader) {
	defer close(r.ended)
	if out != nil {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e Entry
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				r.said <- e
			}
		}
		close(r.said)
	}
	r.err = r.cmd.Wait()
}

// PID is the number of the process.
func (r *Process) PID() int { return r.cmd.Process.Pid }

// Ended is closed when the process is gone.
func (r *Process) Ended() <-chan struct{} { return r.ended }

// Said has what a process says whose log is its standard output; it is closed at its end.
func (r *Process) Said() <-chan Entry { return r.said }

// End asks the program to end.
func (r *Process) End() {
	_ = r.in.Close() // It may be gone already.
}

// Give gives a held handler its turn.
func (r *Process) Give(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(r.in, "go\n"); err != nil {
		t.Fatalf("give %s its turn: %v", r.Name, err)
	}
}

// Kill kills the process, if it is not gone.
func (r *Process) Kill() {
	_ = r.cmd.Process.Kill() // It may be gone already.
}

// Signal sends a signal to the process.
func (r *Process) Signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %v to %s: %v", s, r.Name, err)
	}
}

// Killed reports whether an ended process was killed by a signal.
func (r *Process) Killed() bool {
	var exit *exec.ExitError
	return errors.As(r.err, &exit) && exit.ExitCode() == -1
}

// crashed reports whether an ended process has killed itself.
func (r *Process) crashed() bool { return strings.Contains(r.stderr.String(), crashMark) }

// gaveUp reports whether an ended process has ended because the database was gone, and may have.
func (r *Process) gaveUp() bool {
	var exit *exec.ExitError
	return r.Faults && errors.As(r.err, &exit) && exit.ExitCode() == gaveUp
}

// Problem is what is wrong with how an ended process has ended, or "".
func (r *Process) Problem() string {
	text := r.stderr.String()
	switch {
	case strings.Contains(text, "DATA RACE"):
		return text
	case r.err != nil && !r.Killed() && !r.gaveUp():
		return r.err.Error() + ": " + text
	default:
		return ""
	}
}

// MustEnd ends a program that is to end well.
func (r *Process) MustEnd(t *testing.T) {
	t.Helper()
	r.End()
	select {
	case <-r.ended:
	case <-time.After(Patience):
		t.Fatalf("%s does not end", r.Name)
	}
	if r.err != nil {
		t.Fatalf("%s: %v: %s", r.Name, r.err, r.stderr.String())
	}
}

// Patience is when a test gives up on what should have happened long ago.
const Patience = 2 * time.Minute

// Hear waits for an entry that the process says, and returns it.
func (r *Process) Hear(t *testing.T, what string, matches func(Entry) bool) Entry {
	t.Helper()
	patience := time.After(Patience)
	for {
		select {
		case e, ok := <-r.said:
			if !ok {
				<-r.ended
				t.Fatalf("%s ended before it said %q: %v: %s", r.Name, what, r.err, r.stderr.String())
			}
			if e.What == what && (matches == nil || matches(e)) {
				return e
			}
		case <-patience:
			t.Fatalf("%s never said %q", r.Name, what)
		}
	}
}
