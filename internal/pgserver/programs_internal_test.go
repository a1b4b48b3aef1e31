package pgserver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// install makes a directory with programs that say the version.
func install(t *testing.T, dir, version string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"postgres", "initdb", "pgbouncer"} {
		script := "#!/bin/sh\necho '" + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// lookIn is exec.LookPath with a PATH of one directory.
func lookIn(dir string) func(string) (string, error) {
	return func(name string) (string, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return exec.LookPath(name)
	}
}

func TestSearchForPostgres(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name, "bin") }
	install(t, at("9.6"), "postgres (PostgreSQL) 9.6.24")
	install(t, at("14"), "postgres (PostgreSQL) 14.2")
	install(t, at("18"), "postgres (PostgreSQL) 18beta1")
	install(t, at("broken"), "who?")
	if err := os.MkdirAll(at("99"), 0o755); err != nil {
		t.Fatal(err)
	}
	all := filepath.Join(root, "*", "bin")

	for name, tt := range map[string]struct {
		search search
		want   string
		fails  string
	}{
		"the newest":             {search: search{installed: all}, want: at("18")},
		"the one in PATH":        {search: search{find: lookIn(at("14")), installed: all}, want: at("14")},
		"one in PATH is too old": {search: search{find: lookIn(at("9.6")), installed: all}, want: at("18")},
		"the one that is named":  {search: search{postgresDir: at("14"), find: lookIn(at("18")), installed: all}, want: at("14")},
		"the named is too old":   {search: search{postgresDir: at("9.6"), installed: all}, fails: "is version 9, at least 14"},
		"the named says nothing": {search: search{postgresDir: at("broken"), installed: all}, fails: "instead of its version"},
		"the named is empty":     {search: search{postgresDir: at("99"), installed: all}, fails: "RELAYBUS_POSTGRES_BIN"},
		"all are too old":        {search: search{installed: at("9.6")}, fails: "on Debian the package postgresql"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.search.find == nil {
				tt.search.find = lookIn(at("nowhere"))
			}
			got, err := tt.search.postgres(t.Context())
			if got != tt.want || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("got %q, %v, want %q and an error with %q", got, err, tt.want, tt.fails)
			}
		})
	}
}

func TestSearchForPgBouncer(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	install(t, filepath.Join(root, "a"), "PgBouncer 1.21.0")
	install(t, filepath.Join(root, "b"), "pgbouncer version 1.9.0")
	a, b := filepath.Join(root, "a", "pgbouncer"), filepath.Join(root, "b", "pgbouncer")
	nowhere := lookIn(filepath.Join(root, "nowhere"))

	for name, tt := range map[string]struct {
		search search
		want   string
	}{
		"the one in PATH":       {search: search{find: lookIn(filepath.Dir(a)), pgbouncers: []string{b}}, want: a},
		"the usual place":       {search: search{find: nowhere, pgbouncers: []string{b}}, want: b},
		"the one that is named": {search: search{pgbouncerFile: b, find: lookIn(filepath.Dir(a))}, want: b},
	} {
		if got, err := tt.search.pgbouncer(); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tt.want)
		}
	}
	for _, s := range []search{{find: nowhere}, {pgbouncerFile: a + "x", find: lookIn(filepath.Dir(a))}} {
		if got, err := s.pgbouncer(); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("got %q, %v, want an error", got, err)
		}
	}
	for file, want := range map[string][]int{a: {1, 21}, b: {1, 9}} {
		if got, err := pgbouncerVersion(t.Context(), file); err != nil || !slices.Equal(got, want) {
			t.Errorf("the version is %v, %v, want %v", got, err, want)
		}
	}
}
