package pgserver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Only an old directory that nobody holds is removed.
func TestRemoveAbandoned(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere nothing tells an abandoned directory from one in use")
	}
	parent := t.TempDir()
	longAgo := time.Now().Add(-time.Hour)
	for _, name := range []string{homePrefix + "abandoned", homePrefix + "new", homePrefix + "used", "other"} {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if name == homePrefix+"new" {
			continue
		}
		if err := os.Chtimes(dir, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
	}
	used := filepath.Join(parent, homePrefix+"used")
	lock, err := lockDirectory(used)
	if err != nil {
		t.Fatal(err)
	}

	removeAbandoned(parent, time.Now())
	for name, stays := range map[string]bool{"abandoned": false, "new": true, "used": true} {
		_, err := os.Stat(filepath.Join(parent, homePrefix+name))
		if stays != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s stays: want %t, got %v", name, stays, err)
		}
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	removeAbandoned(parent, time.Now())
	if _, err := os.Stat(used); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory stays when it is used no more: %v", err)
	}
	if _, err := os.Stat(filepath.Join(parent, "other")); err != nil {
		t.Errorf("somebody else's directory: %v", err)
	}
}

func TestPlainEnvironment(t *testing.T) {
	t.Parallel()
	given := []string{"PATH=/bin", "PGOPTIONS=-c geqo=off", "LANG=de_DE", "LC_ALL=de_DE", "RELAYBUS_POSTGRES_URL=x", "HOME=/"}
	if got, want := plainEnvironment(given), []string{"PATH=/bin", "HOME=/", "LC_ALL=C"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	if got := tail(file); got != "" {
		t.Errorf("of no file: %q", got)
	}
	if err := os.WriteFile(file, append(make([]byte, 5000), "the end\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tail(file); len(got) > 2100 || got[len(got)-7:] != "the end" {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-7:])
	}
}
