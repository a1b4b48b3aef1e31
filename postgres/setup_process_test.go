package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// roleVariable makes the test binary do one thing in a process of its own, on the database in urlVariable.
const roleVariable = "RELAYBUS_POSTGRES_TEST_ROLE"

const (
	// roleSetup says that it is ready, waits for its input to end, sets up and publishes.
	roleSetup = "setup"
	// roleSetupKilled is killed in its setup.
	roleSetupKilled = "setup that is killed"
)

// process is the test binary in a role.
func process(tb testing.TB, role, url string) *exec.Cmd {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, urlVariable+"="+url)
	return cmd
}

// play is the process in a role.
func play(role string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv(urlVariable))
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		return err
	}
	switch role {
	case roleSetup:
		fmt.Println("ready")
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			return err
		}
		if err := setupAndPublish(ctx, s, fmt.Sprintf("process %d", os.Getpid())); err != nil {
			return err
		}
	case roleSetupKilled:
		err := postgres.Arm(s, "migrating", 1, func() {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			fmt.Println("kill:", err)
			select {}
		})
		if err != nil {
			return err
		}
		if err := s.Setup(ctx); err != nil {
			return err
		}
		return errors.New("the process still runs after its setup")
	default:
		return fmt.Errorf("no role %q", role)
	}
	return s.Close()
}

func setupAndPublish(ctx context.Context, s *postgres.Store, id string) error {
	if err := s.Setup(ctx); err != nil {
		return err
	}
	// As a bus does at its start.
	if err := s.RecordHandlers(ctx, []store.HandlerEntry{{Handler: store.Handler{ID: "h"}}}, time.Now()); err != nil {
		return err
	}
	return s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		e := (&desk{now: time.Now().UTC().Truncate(time.Millisecond)}).event(id, "k", "h")
		_, err := s.Append(ctx, tx, []store.NewEvent{e}, e.CreatedAt)
		return err
	})
}

// setupProcess is a process that waits for the word to set up.
type setupProcess struct {
	cmd    *exec.Cmd
	word   io.Closer
	errors strings.Builder
}

func startSetup(tb testing.TB, url string) *setupProcess {
	tb.Helper()
	p := &setupProcess{cmd: process(tb, roleSetup, url)}
	p.cmd.Stderr = &p.errors
	word, err := p.cmd.StdinPipe()
	if err != nil {
		tb.Fatalf("start a process: %v", err)
	}
	p.word = word
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatalf("start a process: %v", err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatalf("start a process: %v", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		tb.Fatalf("a process says %q, %v", line, err)
	}
	return p
}

// killInSetup kills a process in its setup, whose transaction is then rolled back.
func killInSetup(tb testing.TB, url string) {
	tb.Helper()
	out, err := process(tb, roleSetupKilled, url).CombinedOutput()
	if state, ok := err.(*exec.ExitError); !ok || state.Exited() { //nolint:errorlint // Wait returns it as it is.
		tb.Fatalf("the process was not killed: %v\n%s", err, out)
	}
}
