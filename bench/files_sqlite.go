package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// files is a directory of databases.
type files struct {
	dir string
	n   int
}

func openFiles(_ context.Context, o options) (site, error) {
	dir, err := os.MkdirTemp(o.dir, "relaybus-bench-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	return &files{dir: dir}, nil
}

// about has nothing to say: the version of the driver is that of SQLite.
func (*files) about(context.Context) (map[string]string, error) { return map[string]string{}, nil }

func (f *files) create(_ context.Context, name string) (string, error) {
	f.n++
	return filepath.Join(f.dir, fmt.Sprintf("%s-%d.db", name, f.n)), nil
}

func (*files) rest(context.Context, string) error { return nil }

// clone copies the file: closing the database has put the log into it.
func (f *files) clone(ctx context.Context, address string) (string, error) {
	data, err := os.ReadFile(address)
	if err != nil {
		return "", err
	}
	copied, err := f.create(ctx, "copy")
	if err != nil {
		return "", err
	}
	return copied, os.WriteFile(copied, data, 0o600)
}

func (*files) remove(_ context.Context, address string) error {
	err := os.Remove(address)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (*files) processorTime() func() time.Duration { return nil }

func (f *files) close(context.Context) error { return os.RemoveAll(f.dir) }
