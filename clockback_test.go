package relaybus_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/relaybustest"
)

// A wall clock that is set back by an hour makes no wait longer than it was meant
// to be.
func TestClockIsSetBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// before brings the bus into the state that waits.
		before func(b *bed)
		most   time.Duration
	}{
		{"between polls", func(*bed) {}, 2 * time.Second},
		{"after a claim that failed", func(b *bed) {
			b.store.failBefore(opClaim, times(1, unavailable()))
			b.publish(raw("e-0"))
		}, 2 * time.Second},
		{"in a pause", func(b *bed) { b.publish(raw("down")) }, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				clock := relaybustest.NewClock(time.Time{})
				var ran atomic.Bool
				h := things("h", func(_ context.Context, e *relaybus.RawEvent) error {
					switch e.ID {
					case "down":
						return relaybus.Unavailable(errBoom)
					case "e-1":
						ran.Store(true)
					}
					return nil
				})
				b := newBed(t, func(c *relaybus.Config) { c.Clock, c.CompletionLinger = clock, relaybus.Never }, h)
				deaf(b)
				b.start()
				synctest.Wait()
				c.before(b)
				synctest.Wait()
				clock.Set(clock.Now().Add(-time.Hour))
				other := newBedOn(t, b.store.Instance(), func(c *relaybus.Config) { c.Clock = clock }, h)
				other.publish(raw("e-1"))
				waited := time.Duration(0)
				for ; !ran.Load() && waited < 2*time.Hour; waited += 500 * time.Millisecond {
					clock.Advance(500 * time.Millisecond)
					synctest.Wait()
				}
				if waited > c.most {
					t.Errorf("it ran after %v", waited)
				}
			})
		})
	}
}

// A publisher that was not started reads the catalogue again after a clock that
// was set back.
func TestCatalogAfterClockIsSetBack(t *testing.T) {
	t.Parallel()
	clock := relaybustest.NewClock(time.Time{})
	withClock := func(c *relaybus.Config) { c.Clock = clock }
	publisher := newBed(t, withClock)
	publisher.publish(raw("e-1"))
	clock.Set(clock.Now().Add(-time.Hour))
	worker := newBedOn(t, publisher.store.Instance(), withClock, things("h", ignore))
	worker.drain() // records the handler
	clock.Advance(time.Minute)
	publisher.publish(raw("e-2"))
	if n := worker.drain(); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}
