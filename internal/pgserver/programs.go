package pgserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// oldest is the first major version of PostgreSQL that the project supports.
const oldest = 14

// search is where to look for programs.
type search struct {
	postgresDir   string
	pgbouncerFile string
	// find is exec.LookPath.
	find func(name string) (string, error)
	// installed is a glob pattern for the directories of the versions of PostgreSQL that are installed side by side.
	installed string
	// pgbouncers are the files to try when pgbouncer is not in PATH.
	pgbouncers []string
}

func systemSearch() search {
	return search{
		postgresDir:   os.Getenv("RELAYBUS_POSTGRES_BIN"),
		pgbouncerFile: os.Getenv("RELAYBUS_PGBOUNCER_BIN"),
		find:          exec.LookPath,
		installed:     "/usr/lib/postgresql/*/bin",
		pgbouncers:    []string{"/usr/sbin/pgbouncer"},
	}
}

// postgres returns the directory of PostgreSQL's programs.
func (s search) postgres(ctx context.Context) (string, error) {
	if s.postgresDir != "" {
		major, err := postgresVersion(ctx, s.postgresDir)
		switch {
		case err != nil:
			return "", fmt.Errorf("find PostgreSQL in the directory that RELAYBUS_POSTGRES_BIN names: %w", err)
		case major < oldest:
			return "", fmt.Errorf("PostgreSQL in RELAYBUS_POSTGRES_BIN is version %d, at least %d is needed", major, oldest)
		}
		return s.postgresDir, nil
	}

	var dirs []string
	if file, err := s.find("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(file))
	}
	side, err := filepath.Glob(s.installed)
	if err != nil {
		return "", fmt.Errorf("list the installed versions of PostgreSQL: %w", err)
	}
	slices.SortFunc(side, func(a, b string) int {
		return cmp.Compare(leadingNumber(filepath.Base(filepath.Dir(b))), leadingNumber(filepath.Base(filepath.Dir(a))))
	})
	for _, dir := range append(dirs, side...) {
		if major, err := postgresVersion(ctx, dir); err == nil && major >= oldest {
			return dir, nil
		}
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("find PostgreSQL: %w", context.Cause(ctx))
	}
	return "", fmt.Errorf("find PostgreSQL %d or newer: %w: install it (on Debian the package postgresql), "+
		"or name the directory of its programs in RELAYBUS_POSTGRES_BIN, or a running server in %s",
		oldest, exec.ErrNotFound, URLVariable)
}

// postgresVersion returns the major version of the programs in the directory. All that a server needs must be there.
func postgresVersion(ctx context.Context, dir string) (int, error) {
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return 0, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask postgres for its version: %w", err)
	}
	found := regexp.MustCompile(`PostgreSQL\) (\d+)`).FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("postgres says %.80q instead of its version", out)
	}
	return leadingNumber(string(found[1])), nil
}

// pgbouncer returns the file of the program.
func (s search) pgbouncer() (string, error) {
	names := append([]string{"pgbouncer"}, s.pgbouncers...)
	if s.pgbouncerFile != "" {
		names = []string{s.pgbouncerFile}
	}
	for _, name := range names {
		if file, err := s.find(name); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("find pgbouncer: %w: install it (on Debian the package pgbouncer), "+
		"or name the program in RELAYBUS_PGBOUNCER_BIN", exec.ErrNotFound)
}

// pgbouncerVersion returns the version of the program: 1.21 is {1, 21}.
func pgbouncerVersion(ctx context.Context, file string) ([]int, error) {
	out, err := exec.CommandContext(ctx, file, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask pgbouncer for its version: %w", err)
	}
	found := regexp.MustCompile(`(?i)pgbouncer (?:version )?(\d+)\.(\d+)`).FindSubmatch(out)
	if found == nil {
		return nil, fmt.Errorf("pgbouncer says %.80q instead of its version", out)
	}
	return []int{leadingNumber(string(found[1])), leadingNumber(string(found[2]))}, nil
}

// leadingNumber returns 0 for a text that starts with no digit.
func leadingNumber(text string) int {
	n, err := strconv.Atoi(regexp.MustCompile(`^\d*`).FindString(text))
	if err != nil {
		return 0
	}
	return n
}
