package relaybus_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
)

// B18: completed for 7 days, dead for ever, unless told otherwise.
func TestRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retention  relaybus.Retention
		after      time.Duration
		done, dead bool // what is left
	}{
		"default, in time":    {relaybus.Retention{}, 6 * 24 * time.Hour, true, true},
		"default, later":      {relaybus.Retention{}, 8 * 24 * time.Hour, false, true},
		"completed for ever":  {relaybus.Retention{Completed: relaybus.Never}, 365 * 24 * time.Hour, true, true},
		"dead for an hour":    {relaybus.Retention{Dead: time.Hour}, 2 * time.Hour, true, false},
		"both, in batches of": {relaybus.Retention{Completed: time.Hour, Dead: time.Hour, BatchSize: 1}, 2 * time.Hour, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, func(cfg *relaybus.Config) { cfg.Retention = c.retention }, things("h", func(_ context.Context, e *relaybus.RawEvent) error {
					if e.ID == "dead" {
						return relaybus.Permanent(errBoom)
					}
					return nil
				}))
				b.publish(raw("done"), raw("dead"), raw("open", relaybus.Delay(9*365*24*time.Hour)))
				b.drain()
				pass(c.after)
				p, err := b.PurgeExpired(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for id, want := range map[string]bool{"done": c.done, "dead": c.dead, "open": true} {
					if _, _, err := b.Event(t.Context(), id); (err == nil) != want {
						t.Errorf("event %s: %v; purged %+v", id, err, p)
					}
				}
				// While its record is there, an id is not handled twice.
				b.publish(raw("done"))
				if n := b.drain(); (n == 0) != c.done {
					t.Errorf("published again, it ran %d times", n)
				}
			})
		})
	}
}

// B18: it runs by itself, not at the same moment everywhere.
func TestRetentionLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		steps, log := &stepHook{}, newLogBook()
		b := newBed(t, func(c *relaybus.Config) {
			c.Random = func() float64 { return 0.25 }
			c.Hooks = append(c.Hooks, steps)
			c.Logger = log.logger()
			c.PollInterval, c.CatalogInterval = time.Hour, time.Hour
		}, things("h", ignore)).start()
		for i, want := range []int{0, 1, 1, 2, 3} {
			pass([]time.Duration{14 * time.Minute, 2 * time.Minute, 58 * time.Minute, 2 * time.Minute, time.Hour}[i])
			synctest.Wait()
			if n := b.store.count(opPurge); n != want {
				t.Errorf("step %d: %d runs, want %d", i, n, want)
			}
		}
		b.store.failBefore(opPurge, times(1, unavailable()))
		pass(time.Hour)
		synctest.Wait()
		if log.count("retention failed") != 1 || steps.purges != 4 {
			t.Errorf("told of %d runs, log: %s", steps.purges, log)
		}
		if _, err := b.PurgeExpired(t.Context()); err != nil {
			t.Error(err)
		}
		b.store.failBefore(opPurge, times(1, unavailable()))
		if p, err := b.PurgeExpired(t.Context()); !errors.Is(err, relaybus.ErrUnavailable) || !errors.Is(p.Err, relaybus.ErrUnavailable) {
			t.Errorf("PurgeExpired: %+v, %v", p, err)
		}
	})
}

func TestRetentionNever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) {
			c.Retention.Interval = relaybus.Never
			c.PollInterval, c.CatalogInterval = time.Hour, time.Hour
		}).start()
		pass(48 * time.Hour)
		if n := b.store.count(opPurge); n != 0 {
			t.Errorf("%d runs", n)
		}
		if lines := b.seen.took(); !slices.Equal(lines, nil) {
			t.Errorf("hooks: %q", lines)
		}
	})
}
