package relaybus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func TestNewWithoutStore(t *testing.T) {
	t.Parallel()
	for _, s := range []store.Store{nil, (*memstore.Store)(nil)} {
		if _, err := relaybus.New(s, relaybus.Config{}); !errors.Is(err, relaybus.ErrConfiguration) {
			t.Errorf("New: %v", err)
		}
	}
}

// The zero value works.
func TestZeroConfig(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := relaybus.New(memstore.New(memstore.Config{}), relaybus.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		if err := b.Subscribe(things("h", func(_ context.Context, e *relaybus.RawEvent) error {
			ran++
			if e.Source != "relaybus" {
				t.Errorf("source is %q", e.Source)
			}
			return nil
		})); err != nil {
			t.Fatal(err)
		}
		if err := b.Transaction(t.Context(), func(ctx context.Context) error { return b.Publish(ctx, raw("e-1")) }); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Drain(t.Context()); n != 1 || err != nil || ran != 1 {
			t.Errorf("Drain: %d, %v", n, err)
		}
	})
}

// F3: each option out of range is named, and nothing is started.
func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*relaybus.Config){
		"Source":                func(c *relaybus.Config) { c.Source = "a\n" },
		"Owner":                 func(c *relaybus.Config) { c.Owner = strings.Repeat("x", 256) },
		"TransactionMode":       func(c *relaybus.Config) { c.TransactionMode = 2 },
		"Concurrency":           func(c *relaybus.Config) { c.Concurrency = -1 },
		"Concurrency 10001":     func(c *relaybus.Config) { c.Concurrency = 10001 },
		"BatchSize":             func(c *relaybus.Config) { c.BatchSize = -1 },
		"Retention.BatchSize":   func(c *relaybus.Config) { c.Retention.BatchSize = -1 },
		"Retention.Completed":   func(c *relaybus.Config) { c.Retention.Completed = -2 },
		"Retention.Dead":        func(c *relaybus.Config) { c.Retention.Dead = 1<<63 - 1 },
		"Retention.Interval":    func(c *relaybus.Config) { c.Retention.Interval = time.Microsecond },
		"MaxPayload":            func(c *relaybus.Config) { c.MaxPayload = 15<<20 + 1 },
		"MaxPayload -1":         func(c *relaybus.Config) { c.MaxPayload = -1 },
		"MaxHeaders":            func(c *relaybus.Config) { c.MaxHeaders = 1<<20 + 1 },
		"TransactionTimeout":    func(c *relaybus.Config) { c.TransactionTimeout = -1 },
		"PollInterval":          func(c *relaybus.Config) { c.PollInterval = -time.Second },
		"LeaseDuration":         func(c *relaybus.Config) { c.LeaseDuration = time.Millisecond },
		"ShutdownTimeout":       func(c *relaybus.Config) { c.ShutdownTimeout = -1 },
		"HandlerTimeout":        func(c *relaybus.Config) { c.HandlerTimeout = -1 },
		"CancelGrace":           func(c *relaybus.Config) { c.CancelGrace = 2 * time.Hour },
		"CatalogInterval":       func(c *relaybus.Config) { c.CatalogInterval = 1 },
		"CompletionLinger":      func(c *relaybus.Config) { c.CompletionLinger = 2 * time.Second },
		"Retry.MaxAttempts":     func(c *relaybus.Config) { c.Retry.MaxAttempts = -1 },
		"Hooks[0]":              func(c *relaybus.Config) { c.Hooks = []relaybus.Hook{17} },
		"Hooks[0]: <nil>":       func(c *relaybus.Config) { c.Hooks = []relaybus.Hook{nil} },
		"Middleware[0]":         func(c *relaybus.Config) { c.Middleware = []relaybus.Middleware{nil} },
		"EventTypes[0]: is nil": func(c *relaybus.Config) { c.EventTypes = []relaybus.AnyEventType{nil} },
		"EventTypes[0]: name":   func(c *relaybus.Config) { c.EventTypes = []relaybus.AnyEventType{relaybus.Define[int]("a.*")} },
		"EventTypes[1]: a is defined with two Go types": func(c *relaybus.Config) {
			c.EventTypes = []relaybus.AnyEventType{relaybus.Define[int]("a"), relaybus.Define[string]("a")}
		},
		"Transports[0] is nil": func(c *relaybus.Config) { c.Transports = append(c.Transports, nil) },
	} {
		cfg := quiet()
		change(&cfg)
		_, err := relaybus.New(memstore.New(memstore.Config{}), cfg)
		if !errors.Is(err, relaybus.ErrConfiguration) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := relaybus.New(memstore.New(memstore.Config{}), relaybus.Config{Concurrency: -1, PollInterval: -1, Source: "\x00"})
	for _, field := range []string{"Concurrency", "PollInterval", "Source"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

// small is a store with a limit of its own.
type small struct{ *memstore.Store }

func (small) Features() store.Features { return store.Features{MaxPayloadBytes: 1000} }

func TestStoreLimitsPayload(t *testing.T) {
	t.Parallel()
	cfg := quiet()
	cfg.MaxPayload = 1001
	if _, err := relaybus.New(small{memstore.New(memstore.Config{})}, cfg); !errors.Is(err, relaybus.ErrConfiguration) || !strings.Contains(err.Error(), "1000") {
		t.Errorf("New: %v", err)
	}
}

// B24: nothing but the given clock and randomness decides times and ids.
func TestClockOfTheBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2031, 5, 6, 7, 8, 9, 123_456_789, time.FixedZone("x", 3600))
		n := 0
		b := newBed(t, func(c *relaybus.Config) {
			c.Clock = fixedClock{at}
			c.GenerateID = func() string { n++; return []string{"a", "b", "c"}[n-1] }
		}, relaybus.Handle("h", []string{"*"}, ignore))
		b.publish(relaybus.Raw("t", []byte(`1`)), relaybus.Raw("t", []byte(`1`), relaybus.ID("own")), relaybus.Raw("t", []byte(`1`)))
		list := b.list(relaybus.Filter{})
		if len(list) != 3 || list[0].ID.EventID != "a" || list[2].ID.EventID != "b" {
			t.Errorf("events are %+v", list)
		}
		want := at.UTC().Truncate(time.Millisecond)
		if d := list[0]; !d.Event.CreatedAt.Equal(want) || d.Event.CreatedAt.Location() != time.UTC || !d.DueAt.Equal(want) {
			t.Errorf("times are %v, %v", d.Event.CreatedAt, d.DueAt)
		}
	})
}

type fixedClock struct{ at time.Time }

func (c fixedClock) Now() time.Time { return c.at }

func (fixedClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for o, want := range map[relaybus.Outcome]string{
		relaybus.Committed: "committed", relaybus.Staged: "staged", relaybus.NotCommitted: "not committed", relaybus.Unknown: "unknown", 0: "invalid",
	} {
		if got := o.String(); got != want {
			t.Errorf("%d is %q, want %q", o, got, want)
		}
	}
	if relaybus.OutcomeOf(nil) != relaybus.Committed || relaybus.OutcomeOf(errBoom) != relaybus.NotCommitted || relaybus.OutcomeOf(unknown()) != relaybus.Unknown {
		t.Error("OutcomeOf is wrong")
	}
}
