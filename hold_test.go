package relaybus_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// B13, Z13: a dead delivery holds its key until an operator skips or requeues
// it, in every process, and retention leaves it alone.
func TestHoldKey(t *testing.T) {
	t.Parallel()
	for _, requeue := range []bool{false, true} {
		t.Run(map[bool]string{false: "skip", true: "requeue"}[requeue], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				s := memstore.New(memstore.Config{})
				var ran trail
				broken := true
				handler := things("h", func(_ context.Context, e *relaybus.RawEvent) error {
					ran.add(e.ID)
					if broken && e.ID == "e-1" {
						return relaybus.Permanent(errBoom)
					}
					return nil
				}, relaybus.HoldKey())
				dead := func(c *relaybus.Config) { c.Retention.Dead = time.Hour }
				b := newBedOn(t, s, dead, handler)
				k := relaybus.Key("k")
				b.publish(raw("e-1", k), raw("e-2", k), raw("e-3", k), raw("other", relaybus.Key("o")), raw("keyless"))
				b.drain()
				if got := slices.Sorted(slices.Values(ran.took())); !slices.Equal(got, []string{"e-1", "keyless", "other"}) {
					t.Errorf("ran %q", got)
				}
				if h := b.stats().Held; h != 1 {
					t.Errorf("%d held", h)
				}
				if d := b.only(relaybus.Filter{HoldsKey: true}); d.ID.EventID != "e-1" || !d.HoldsKey {
					t.Errorf("held is %+v", d)
				}
				pass(24 * time.Hour)
				if p, err := b.PurgeExpired(ctx); err != nil || p.Deliveries != 0 {
					t.Errorf("retention took %+v, %v", p, err)
				}
				again := newBedOn(t, s.Instance(), dead, handler)
				broken = false
				if n := again.drain(); n != 0 {
					t.Errorf("another process ran %q", ran.took())
				}
				id := relaybus.DeliveryID{EventID: "e-1", Handler: "h"}
				want := []string{"e-2", "e-3"}
				if requeue {
					want = []string{"e-1", "e-2", "e-3"}
					if err := again.Requeue(ctx, id); err != nil {
						t.Fatal(err)
					}
				} else if err := again.Skip(ctx, id); err != nil {
					t.Fatal(err)
				}
				again.drain()
				if got := ran.took(); !slices.Equal(got, want) {
					t.Errorf("ran %q, want %q", got, want)
				}
				if err := again.Skip(ctx, id); requeue == errors.Is(err, relaybus.ErrState) && !errors.Is(err, relaybus.ErrNotFound) {
					t.Errorf("skip again: %v", err)
				}
			})
		})
	}
}

// Without HoldKey a dead letter lets the others pass.
func TestDeadLetterPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran trail
		b := newBed(t, nil, things("h", func(_ context.Context, e *relaybus.RawEvent) error {
			ran.add(e.ID)
			return relaybus.Permanent(errBoom)
		}))
		b.publish(raw("e-1", relaybus.Key("k")), raw("e-2", relaybus.Key("k")))
		b.drain()
		if got := ran.took(); !slices.Equal(got, []string{"e-1", "e-2"}) || b.stats().Dead != 2 || b.stats().Held != 0 {
			t.Errorf("ran %q, %+v", got, b.stats())
		}
	})
}
