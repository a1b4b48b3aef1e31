package postgres

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// crashPoints are the names that Arm takes.
var crashPoints = map[string][]string{ //nolint:gochecknoglobals // a table
	"setup":    {"migrating"},
	"publish":  {"committing", "committed"},
	"work":     {"recording a claim", "recorded a claim", "settling", "settled"},
	"takeover": {"reaped owners"},
}

// CrashPoints are the names that Arm takes.
func CrashPoints() map[string][]string { return crashPoints }

// Arm calls crash when the store passes the point for the nth time.
func Arm(s *Store, point string, nth int, crash func()) error {
	known := false
	for _, points := range crashPoints {
		known = known || slices.Contains(points, point)
	}
	if !known {
		return fmt.Errorf("no crash point %q", point)
	}
	var mu sync.Mutex
	s.crash = func(passed string) {
		mu.Lock()
		defer mu.Unlock()
		if passed == point {
			if nth--; nth == 0 {
				crash()
			}
		}
	}
	return nil
}

// Transactions counts the write transactions that were begun, and RowsRead the rows
// that claims and settlements read.
func Transactions(s *Store) int64 { return s.meter.transactions.Load() }
func RowsRead(s *Store) int64     { return s.meter.rows.Load() }

// RoundTrips counts those of claims and settlements.
func RoundTrips(s *Store) int64 { return s.meter.trips.Load() }

// Narrow has the owner's looks at a handler begin where the last one found something, as
// if that had taken so long.
func Narrow(s *Store, owner, handler string, took time.Duration) {
	w := s.worker(owner)
	ref, _ := s.handlers.ref(handler)
	w.horizon = horizon{}
	w.horizon.looked([]int32{ref}, nil, w.looked, took)
}

// MoveClass is the class of the advisory locks of moves.
func MoveClass(s *Store) int32 { return s.moveClass() }

// Write runs fn in a write transaction of the store's own. What fn gets executes a statement in it.
func Write(ctx context.Context, s *Store, fn func(exec func(text string) error) error) error {
	return s.write(ctx, "write", func(ctx context.Context, x *session) error {
		return fn(func(text string) error {
			_, err := x.exec(ctx, text)
			return err
		})
	})
}

// SetupLock is the statement that Setup begins with, and its argument.
func SetupLock(s *Store) (text, key string) { return s.sql.setupLock, s.cfg.setupKey() }

// StatementTexts are the texts of all statements, by the names of their fields.
func StatementTexts(s *Store) map[string]string {
	texts := make(map[string]string)
	groups := reflect.ValueOf(*s.sql)
	for _, group := range groups.Fields() {
		for field, text := range group.Fields() {
			texts[field.Name] = text.String()
		}
	}
	return texts
}

// Settings begin each transaction of the store's own.
var Settings = strings.ReplaceAll(settings, "$1", "true") //nolint:gochecknoglobals // for the plans
