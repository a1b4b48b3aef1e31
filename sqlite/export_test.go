package sqlite

import (
	"errors"
	"slices"
)

// CrashPoints are the names that Arm takes.
func CrashPoints() map[string][]string {
	return map[string][]string{
		"setup":    {"begin", "migrating", "commit set up store", "committed set up store"},
		"publish":  {"begin", "commit run transaction", "committed run transaction"},
		"work":     {"begin", "commit claim deliveries", "committed claim deliveries", "commit settlement", "committed settlement"},
		"takeover": {"reaped an owner"},
	}
}

// Arm calls crash when the store passes the point for the nth time.
func Arm(s *Store, point string, nth int, crash func()) error {
	known := false
	for _, points := range CrashPoints() {
		known = known || slices.Contains(points, point)
	}
	if !known {
		return errors.New("no such crash point: " + point)
	}
	passed := 0
	s.crash = func(at string) {
		if at != point {
			return
		}
		if passed++; passed == nth {
			crash()
		}
	}
	return nil
}

// RowsRead is how many rows the store's statements returned or changed.
func RowsRead(s *Store) int64 { return s.meter.rows.Load() }

// Writes is how many write transactions were begun.
func Writes(s *Store) int64 { return s.meter.writes.Load() }

// Statements is how many statements were run.
func Statements(s *Store) int64 { return s.meter.statements.Load() }
