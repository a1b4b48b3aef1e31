//go:build unix

package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// play does what a process of the tests is for.
func play(role, path string) error {
	switch role {
	case "read only":
		return playReadOnly(path)
	case "full disk":
		return playFullDisk(path)
	case "increment":
		return playIncrement(path)
	default:
		return errors.New("no such role")
	}
}

func finish(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("process: %v\n%s", err, out)
	}
}

// F67: a file that may only be read.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.publish(b.event("e", "", "h"))
	if err := b.s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	dir := filepath.Dir(b.path)
	for _, path := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(b.path, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Error(err)
		}
	})
	finish(t, process(t, "read only", b.path))
}

func playReadOnly(path string) error {
	if os.Geteuid() == 0 { // Nothing is read-only for root.
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	s, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	ctx := context.Background()
	_, claim := s.Claim(ctx, store.ClaimRequest{
		Owner: "w", Limit: 1, Now: now, Lease: time.Minute,
		Handlers: []store.HandlerLimit{{Handler: store.Handler{ID: "h"}, Limit: 1}},
	})
	for name, err := range map[string]error{
		"claim": claim,
		"pause": s.PauseHandler(ctx, "h", true, now),
		"transact": s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			_, err := s.Append(ctx, tx, []store.NewEvent{{Event: store.Event{ID: "f", Type: "t"}}}, now)
			return err
		}),
	} {
		if typed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(typed, store.ErrUnavailable) {
			return fmt.Errorf("%s: %w", name, errors.Join(errors.New("not unavailable"), err))
		}
	}
	return s.Close()
}

// F67: a disk that is full writes nothing by half, and works again afterwards.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	finish(t, process(t, "full disk", b.path))
	if stats := b.stats(); stats.Pending != 2*11 {
		t.Errorf("%d deliveries, want those of 10 events before and one after", stats.Pending)
	}
	if got := b.texts(`PRAGMA integrity_check`); got[0] != "ok" {
		t.Errorf("integrity: %v", got)
	}
	got := b.claim(100, "h", "g")
	b.complete(got...)
	if len(got) != 22 {
		t.Errorf("claimed %d", len(got))
	}
}

func playFullDisk(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	publish := func(id string, size int) error {
		return s.Transact(context.Background(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			_, err := s.Append(ctx, tx, []store.NewEvent{{
				Event:    store.Event{ID: id, Type: "t", Payload: make([]byte, size), CreatedAt: now},
				DueAt:    now,
				Handlers: []store.Handler{{ID: "h"}, {ID: "g"}},
			}}, now)
			return err
		})
	}
	for i := range 10 {
		if err := publish(fmt.Sprintf("e-%d", i), 10); err != nil {
			return err
		}
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	small := limit
	small.Cur = 512 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		return err
	}
	for _, size := range []int{1 << 20, 16 << 20} { // at the commit, and when the cache spills before it
		err := publish("big", size)
		typed, ok := errors.AsType[*store.Error](err)
		if !ok || !errors.Is(typed, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) {
			return fmt.Errorf("publish to a full disk: %w", errors.Join(errors.New("not unavailable"), err))
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	return errors.Join(publish("after", 10), s.Close())
}

// SQLite's own report of a full disk.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.exec(`PRAGMA max_page_count = 60`)
	e := b.event("big", "", "h")
	e.Payload = make([]byte, 1<<20)
	if err := b.tryPublish(t.Context(), e); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("publish: %v", err)
	}
	b.exec(`PRAGMA max_page_count = 100000`)
	b.publish(e)
}

// F45: processes that read and then write never fail because another one wrote
// in between, neither through the store nor through its handle.
func TestReadThenWrite(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.exec(`CREATE TABLE counters (n INTEGER)`)
	b.exec(`INSERT INTO counters VALUES (0)`)
	reader, err := b.s.Reader().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	var before int
	if err := reader.QueryRowContext(t.Context(), `SELECT n FROM counters`).Scan(&before); err != nil {
		t.Fatalf("read: %v", err)
	}
	const processes = 4
	commands := make([]*exec.Cmd, processes)
	for i := range commands {
		commands[i] = process(t, "increment", b.path)
		commands[i].Stderr = os.Stderr
		if err := commands[i].Start(); err != nil {
			t.Fatalf("start: %v", err)
		}
	}
	for _, cmd := range commands {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process: %v", err)
		}
	}
	var after int
	if err := reader.QueryRowContext(t.Context(), `SELECT n FROM counters`).Scan(&after); err != nil || after != before {
		t.Errorf("the long reader sees %d, then %d, %v", before, after, err)
	}
	if err := reader.Rollback(); err != nil {
		t.Errorf("roll back: %v", err)
	}
	if got := b.texts(`SELECT n FROM counters`); got[0] != strconv.Itoa(processes*2*increments) {
		t.Errorf("counted to %v, want %d", got, processes*2*increments)
	}
}

const increments = 60

func playIncrement(path string) error {
	s, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for range increments {
		tx, err := s.DB().BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT n FROM counters`).Scan(&n); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if _, err := tx.ExecContext(ctx, `UPDATE counters SET n = ?`, n+1); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		err = s.Transact(ctx, store.TxOptions{Lazy: true}, func(ctx context.Context, _ store.Tx) error {
			if err := sqlite.Tx(ctx).QueryRowContext(ctx, `SELECT n FROM counters`).Scan(&n); err != nil {
				return err
			}
			_, err := sqlite.Tx(ctx).ExecContext(ctx, `UPDATE counters SET n = ?`, n+1)
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.Close()
}
