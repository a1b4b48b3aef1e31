package sqlite

import (
	"context"
	"errors"
	"slices"
	"testing"
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

// Workers is how many owners the store remembers.
func Workers(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// Statements is how many statements were run.
func Statements(s *Store) int64 { return s.meter.statements.Load() }

// Hot returns the statements that run in claims, settlements and appends, with
// the index (or key) that each step must use.
func Hot(s *Store) map[string]struct {
	Text  string
	Index []string
} {
	type plan = struct {
		Text  string
		Index []string
	}
	const key = "USING PRIMARY KEY"
	ready, open := s.cfg.Prefix+"deliveries_ready", s.cfg.Prefix+"deliveries_open"
	q := s.sql
	return map[string]plan{
		"discover":        {q.discover, []string{ready}},
		"foreign lanes":   {q.foreignLanes, []string{key}},
		"read lane":       {q.readLane, []string{ready, open, key}},
		"head":            {q.headOf, []string{open}},
		"behind":          {q.behind, []string{open}},
		"park":            {q.park, []string{key}},
		"all handlers":    {q.allHandlers, []string{ready, open, s.cfg.Prefix + "deliveries_died"}},
		"oldest ready":    {q.oldestReady, []string{ready}},
		"unpark":          {q.unpark, []string{key}},
		"take lane":       {q.takeLane, nil},
		"free lane":       {q.freeLane, []string{key}},
		"events":          {q.readEvents, []string{"INTEGER PRIMARY KEY"}},
		"expired owners":  {q.expiredOwners, []string{s.cfg.Prefix + "owners_lease"}},
		"own lease":       {q.ownLease, []string{"INTEGER PRIMARY KEY"}},
		"claims of owner": {q.claimsOf, []string{key}},
		"drop claim":      {q.dropClaim, []string{key}},
		"paused":          {q.pausedRefs, []string{s.cfg.Prefix + "handlers_paused"}},
		"complete":        {q.complete, []string{key}},
		"reschedule":      {q.reschedule, []string{key}},
		"release":         {q.release, []string{key}},
		"bury":            {q.bury, []string{key}},
		"charge lost":     {q.chargeLost, []string{key}},
		"give back":       {q.giveBack, []string{key}},
		"add first":       {q.addFirst, nil},
		"known event":     {q.knownEvent, []string{"(id=?)"}},
		"handler":         {q.handlerRef, []string{"(id=?)"}},
		"group":           {q.handlerGroup, []string{s.cfg.Prefix + "handlers_grp"}},
		"old completions": {q.oldCompletions, []string{s.cfg.Prefix + "completions_at"}},
		"old dead":        {q.oldDead, []string{s.cfg.Prefix + "deliveries_died"}},
		"old unheard":     {q.oldUnheard, []string{s.cfg.Prefix + "events_unheard"}},
		"one delivery":    {q.findDelivery, []string{"(id=?)", key}},
	}
}

// Watch returns a function that looks once whether somebody else has committed.
func Watch(ctx context.Context, tb testing.TB, s *Store) (changed func() bool, stop func()) {
	tb.Helper()
	db, err := s.open(false)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	w := &watch{s: s, conn: conn}
	changed = func() bool {
		yes, err := w.changed(ctx)
		if err != nil {
			tb.Errorf("look: %v", err)
		}
		return yes
	}
	changed()
	return changed, func() {
		if err := errors.Join(conn.Close(), db.Close()); err != nil {
			tb.Errorf("close: %v", err)
		}
	}
}
