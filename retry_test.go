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

// B11: exponential backoff with a cap, a limit of attempts, then dead.
func TestRetryBackoff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy relaybus.RetryPolicy
		random float64
		want   []time.Duration
	}{
		"defaults without jitter": {
			relaybus.RetryPolicy{NoJitter: true},
			0,
			[]time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second, 128 * time.Second, 256 * time.Second},
		},
		"cap":              {relaybus.RetryPolicy{MaxAttempts: 5, Base: time.Minute, Cap: 90 * time.Second, NoJitter: true}, 0, []time.Duration{60 * time.Second, 90 * time.Second, 90 * time.Second, 90 * time.Second}},
		"half the jitter":  {relaybus.RetryPolicy{MaxAttempts: 3}, 0.5, []time.Duration{500 * time.Millisecond, time.Second}},
		"no wait":          {relaybus.RetryPolicy{MaxAttempts: 3}, 0, []time.Duration{0, 0}},
		"one attempt":      {relaybus.RetryPolicy{MaxAttempts: 1}, 0, nil},
		"own delay":        {relaybus.RetryPolicy{MaxAttempts: 3, Delay: func(n int, _ error) time.Duration { return time.Duration(n) * time.Hour }}, 0, []time.Duration{time.Hour, 2 * time.Hour}},
		"own delay absurd": {relaybus.RetryPolicy{MaxAttempts: 2, Delay: func(int, error) time.Duration { return -5 }}, 0, []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var times []time.Time
				var attempts []int
				b := newBed(t, func(cfg *relaybus.Config) {
					cfg.Random = func() float64 { return c.random }
					cfg.Retry = relaybus.RetryPolicy{MaxAttempts: 99}
					cfg.PollInterval, cfg.CatalogInterval = time.Hour, time.Hour // so that hours pass quickly
				},
					things("h", func(_ context.Context, e *relaybus.RawEvent) error {
						times = append(times, time.Now())
						attempts = append(attempts, e.Attempt)
						return errBoom
					}, relaybus.Retry(c.policy)))
				b.start()
				b.publish(raw("e-1"))
				pass(5 * time.Hour)
				synctest.Wait()
				var waits []time.Duration
				for i := 1; i < len(times); i++ {
					waits = append(waits, times[i].Sub(times[i-1]))
				}
				if !slices.Equal(waits, c.want) {
					t.Errorf("waits are %v, want %v", waits, c.want)
				}
				if attempts[0] != 1 || attempts[len(attempts)-1] != len(c.want)+1 {
					t.Errorf("attempts are %v", attempts)
				}
				if d := b.only(relaybus.Filter{Status: relaybus.StatusDead}); d.Attempts != len(c.want)+1 || d.Error != "boom" || d.HoldsKey {
					t.Errorf("delivery is %+v", d)
				}
			})
		})
	}
}

// B11: the bus's policy is the default, and RetryAfter can't go past the limit.
func TestRetryLimitOfBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		b := newBed(t, func(c *relaybus.Config) { c.Retry.MaxAttempts = 2 }, things("h", func(context.Context, *relaybus.RawEvent) error {
			ran++
			return relaybus.RetryAfter(0, errBoom)
		}))
		b.publish(raw("e-1"))
		b.drain()
		if d := b.only(relaybus.Filter{}); ran != 2 || d.Status != relaybus.StatusDead {
			t.Errorf("it ran %d times, and is %+v", ran, d)
		}
	})
}

func TestRetryPolicyIsChecked(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]relaybus.RetryPolicy{
		"negative attempts": {MaxAttempts: -1},
		"absurd attempts":   {MaxAttempts: 1_000_001},
		"negative base":     {Base: -1},
		"absurd base":       {Base: 1<<63 - 1},
		"negative cap":      {Cap: -1},
		"absurd cap":        {Cap: 1<<63 - 1},
		"cap below base":    {Base: 2, Cap: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			if err := b.Subscribe(things("h", ignore, relaybus.Retry(p))); !errors.Is(err, relaybus.ErrConfiguration) {
				t.Errorf("Subscribe: %v", err)
			}
			cfg := quiet()
			cfg.Retry = p
			if _, err := relaybus.New(b.store, cfg); !errors.Is(err, relaybus.ErrConfiguration) {
				t.Errorf("New: %v", err)
			}
		})
	}
}
