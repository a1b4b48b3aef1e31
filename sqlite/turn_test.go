package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// Who waits for the writer gets it in the order in which they came, and learns
// when the store is closed.
func TestWritersTakeTurns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.OpenConfig(path, sqlite.Config{BusyTimeout: time.Hour})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if err := s.Setup(t.Context()); err != nil {
			t.Fatalf("setup: %v", err)
		}
		const waiting = 12
		release, left := make(chan struct{}), make(chan int, waiting)
		failed := make(chan error, waiting+1)
		transact := func(fn func()) {
			failed <- s.Transact(t.Context(), store.TxOptions{}, func(context.Context, store.Tx) error {
				fn()
				return nil
			})
		}
		go transact(func() { <-release })
		synctest.Wait()
		for i := range waiting {
			go transact(func() {
				left <- i
				if i == waiting-2 {
					<-release
				}
			})
			synctest.Wait()
		}
		release <- struct{}{}
		synctest.Wait()
		var order []int
		for len(left) > 0 {
			order = append(order, <-left)
		}
		if len(order) != waiting-1 || !slices.IsSorted(order) {
			t.Errorf("order %v", order)
		}
		// One holds the writer, and one waits for it.
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		var closed int
		for range waiting + 1 {
			if err := <-failed; errors.Is(err, store.ErrClosed) {
				closed++
			} else if err != nil {
				t.Errorf("transact: %v", err)
			}
		}
		if closed != 1 {
			t.Errorf("%d were told that the store is closed, want the one that waited", closed)
		}
	})
}

// Watching ends with the store.
func TestWakeEndsWithStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Wake(context.WithoutCancel(t.Context()), func() {}) }()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if err := <-ended; !errors.Is(err, store.ErrClosed) {
		t.Errorf("wake: %v", err)
	}
}

// A read that meets a lock on the whole file ends with its context.
func TestReadEndsAtLock(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	path := filepath.Join(t.TempDir(), "locked.db")
	db := plain(t, path)
	db.SetMaxOpenConns(1)
	for _, text := range []string{`PRAGMA locking_mode = EXCLUSIVE`, `CREATE TABLE a (b)`, `BEGIN EXCLUSIVE`} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	b.s = open(t, path, sqlite.Config{BusyTimeout: time.Hour})
	for name, step := range map[string]func(context.Context) error{
		"setup": b.s.Setup,
		"stats": func(ctx context.Context) error { _, err := b.s.Stats(ctx, b.now); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := step(ctx); !errors.Is(err, store.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
