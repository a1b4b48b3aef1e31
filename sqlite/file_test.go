package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// L1: whatever is in a path belongs to the path.
func TestPaths(t *testing.T) {
	t.Parallel()
	names := []string{
		"with space.db", "100%.db", "a%41b.db", "what?.db", "what?mode=ro.db", "#1.db", "a&b=c.db", "ünïcode-☃.db",
		"file:x.db", "semi;colon.db", "quote'\".db", "+plus.db", "dir with ?/inner #.db",
	}
	for _, name := range names {
		path := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		b := newBedAt(t, path, sqlite.Config{})
		b.publish(b.event("e", "", "h"))
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: the file is elsewhere: %v", name, err)
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), filepath.Base(path)) {
				t.Errorf("%q: there is a file %q", name, entry.Name())
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cases := map[string]struct {
		path string
		c    sqlite.Config
	}{
		"no path":           {"", sqlite.Config{}},
		"memory":            {":memory:", sqlite.Config{}},
		"NUL":               {dir + "/a\x00b", sqlite.Config{}},
		"a directory":       {dir, sqlite.Config{}},
		"no such directory": {filepath.Join(dir, "none", "a.db"), sqlite.Config{}},
		"prefix":            {filepath.Join(dir, "a.db"), sqlite.Config{Prefix: `a"; DROP TABLE x`}},
		"prefix too long":   {filepath.Join(dir, "a.db"), sqlite.Config{Prefix: strings.Repeat("a", 41)}},
		"prefix of digits":  {filepath.Join(dir, "a.db"), sqlite.Config{Prefix: "1a"}},
		"busy timeout":      {filepath.Join(dir, "a.db"), sqlite.Config{BusyTimeout: -1}},
		"wake interval":     {filepath.Join(dir, "a.db"), sqlite.Config{WakeInterval: 1}},
		"readers":           {filepath.Join(dir, "a.db"), sqlite.Config{Readers: -1}},
		"synchronous":       {filepath.Join(dir, "a.db"), sqlite.Config{Synchronous: 7}},
	}
	for name, c := range cases {
		if s, err := sqlite.OpenConfig(c.path, c.c); !errors.Is(err, store.ErrConfiguration) || s != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := sqlite.OpenConfig("", sqlite.Config{Prefix: "?", Readers: -1})
	for _, part := range []string{"path", "Prefix", "Readers"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("all mistakes at once: %v lacks %s", err, part)
		}
	}
}

// S15: what is no database, or a damaged one.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path, sqlite.Config{})
	if err := s.Setup(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("setup of a text file: %v", err)
	}

	b := newBed(t, sqlite.Config{})
	for range 20 {
		b.publish(b.events(50, "", "h")...)
	}
	if err := b.s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	data, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 8192; i < len(data); i++ {
		data[i] = 0xa5
	}
	if err := os.WriteFile(b.path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, b.path, sqlite.Config{})
	_, err = s.Claim(t.Context(), b.request("w", 10, "h"))
	if typed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(typed, store.ErrUnavailable) {
		t.Errorf("claim from a damaged file: %v", err)
	}
}

// S1: a database without the tables, and one of a newer version.
func TestSchemaStates(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	s := open(t, path, sqlite.Config{})
	_, err := s.Stats(t.Context(), newBed(t, sqlite.Config{}).now)
	if !errors.Is(err, store.ErrNotSetUp) || !errors.Is(err, store.ErrConfiguration) {
		t.Errorf("before setup: %v", err)
	}
	b := newBedAt(t, path, sqlite.Config{})
	b.publish(b.event("e", "", "h"))
	got := b.claim(1, "h")
	b.exec(`UPDATE relaybus_meta SET value = 99 WHERE key = 'schema'`)
	before := b.texts(`SELECT ifnull(sql, '') FROM sqlite_schema ORDER BY name`)
	newer := open(t, path, sqlite.Config{})
	calls := map[string]error{
		"setup":   newer.Setup(t.Context()),
		"publish": b.tryPublish(t.Context(), b.event("f", "", "h")),
		"pause":   newer.PauseHandler(t.Context(), "h", true, b.now),
	}
	_, calls["claim"] = newer.Claim(t.Context(), b.request("v", 1, "h"))
	_, calls["settle"] = b.s.Settle(t.Context(), "w", []store.Settlement{{Lease: got[0].Lease, Action: store.Complete}}, b.now)
	for name, err := range calls {
		if !errors.Is(err, store.ErrSchemaTooNew) || !errors.Is(err, store.ErrConfiguration) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := b.texts(`SELECT ifnull(sql, '') FROM sqlite_schema ORDER BY name`); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Error("a newer schema was touched")
	}
	b.exec(`UPDATE relaybus_meta SET value = 1 WHERE key = 'schema'`)
	b.complete(got...)
}

// Two stores with different prefixes share a file and nothing else.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	a := newBed(t, sqlite.Config{})
	b := newBedAt(t, a.path, sqlite.Config{Prefix: "Second_2"})
	a.publish(a.event("e", "", "h"))
	b.publish(b.event("e", "", "h"))
	for _, one := range []*bed{a, b} {
		one.complete(one.claim(10, "h")...)
		if stats := one.stats(); stats.Pending+stats.Running != 0 {
			t.Errorf("left: %+v", stats)
		}
	}
	if version := a.texts(`PRAGMA user_version`); version[0] != "0" {
		t.Errorf("the user's own version is %v", version)
	}
}

// L2: commits are as durable as the options say.
func TestSynchronous(t *testing.T) {
	t.Parallel()
	for mode, want := range map[sqlite.Synchronous]string{sqlite.Full: "2", sqlite.Normal: "1"} {
		b := newBed(t, sqlite.Config{Synchronous: mode})
		var got, journal string
		if err := b.s.DB().QueryRowContext(t.Context(), `PRAGMA synchronous`).Scan(&got); err != nil || got != want {
			t.Errorf("mode %d: synchronous is %q, %v", mode, got, err)
		}
		if err := b.s.DB().QueryRowContext(t.Context(), `PRAGMA journal_mode`).Scan(&journal); err != nil || journal != "wal" {
			t.Errorf("journal mode %q, %v", journal, err)
		}
		if _, err := b.s.Reader().ExecContext(t.Context(), `DELETE FROM relaybus_events`); err == nil {
			t.Error("a reader wrote")
		}
	}
}

// B8: what goes in comes out, byte for byte.
func TestBytes(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	payload := []byte("{ \"b\" : 1.0e+2,\n\t\"a\":9007199254740993, \"z\":\"\\u0000\xf0\x9f\x98\x80\" , \"n\": -0 }")
	for id, headers := range map[string][]byte{"with": []byte(`{"x" : "1"}`), "empty": []byte(`{}`), "without": nil} {
		e := b.event(id, "", "h")
		e.Payload, e.Headers = payload, headers
		b.publish(e)
		got := b.claim(1, "h")
		if !bytes.Equal(got[0].Event.Payload, payload) || !bytes.Equal(got[0].Event.Headers, headers) {
			t.Errorf("%s: claimed %q and %q", id, got[0].Event.Payload, got[0].Event.Headers)
		}
		event, _, err := b.s.GetEvent(t.Context(), id)
		if err != nil || !bytes.Equal(event.Payload, payload) || (event.Headers == nil) != (headers == nil) {
			t.Errorf("%s: got %q and %q, %v", id, event.Payload, event.Headers, err)
		}
		b.complete(got...)
	}
}
