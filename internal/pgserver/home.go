package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	homePrefix = "relaybus-pgserver-"
	// abandonedAfter is long enough for a process to lock the directory that it has just made.
	abandonedAfter = time.Minute
)

// home is the private directory of a program that runs. Its lock tells that the process that made it is alive.
type home struct {
	dir  string
	lock *os.File
}

// newHome makes a directory for the account, after it has removed those whose processes were killed.
func newHome(owner *account) (home, error) {
	removeAbandoned(os.TempDir(), time.Now())
	dir, err := os.MkdirTemp("", homePrefix)
	if err != nil {
		return home{}, fmt.Errorf("make a directory for the server: %w", err)
	}
	h := home{dir: dir}
	if h.lock, err = lockDirectory(dir); err == nil {
		err = owner.give(dir)
	}
	if err != nil {
		h.remove()
		return home{}, fmt.Errorf("take the server's directory: %w", err)
	}
	return h, nil
}

func (h home) file(name string) string { return filepath.Join(h.dir, name) }

// remove does what it can: what remains in a temporary directory is no reason to fail a test.
func (h home) remove() {
	_ = os.RemoveAll(h.dir)
	if h.lock != nil {
		_ = h.lock.Close()
	}
}

// removeAbandoned removes the directories that nobody holds the lock of.
func removeAbandoned(parent string, now time.Time) {
	dirs, err := filepath.Glob(filepath.Join(parent, homePrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() || now.Sub(info.ModTime()) < abandonedAfter {
			continue
		}
		if lock, err := lockDirectory(dir); err == nil && lock != nil {
			home{dir: dir, lock: lock}.remove()
		}
	}
}
