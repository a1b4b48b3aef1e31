package relaybus_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func named(log *[]string, name string) relaybus.Middleware {
	return func(next relaybus.HandlerFunc) relaybus.HandlerFunc {
		return func(ctx context.Context, e *relaybus.RawEvent) error {
			*log = append(*log, name+" before "+e.ID)
			err := next(ctx, e)
			*log = append(*log, name+" after "+e.Handler)
			return err
		}
	}
}

// B20: the first one is the outermost, also around typed handlers.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log []string
		b := newBed(t, func(c *relaybus.Config) {
			c.Middleware = []relaybus.Middleware{named(&log, "outer"), named(&log, "inner")}
		},
			orderPlaced().Handle("h", func(context.Context, *relaybus.Event[order]) error {
				log = append(log, "handler")
				return nil
			}))
		b.publish(orderPlaced().New(order{}, relaybus.ID("e-1")))
		b.drain()
		if !slices.Equal(log, []string{"outer before e-1", "inner before e-1", "handler", "inner after h", "outer after h"}) {
			t.Errorf("order is %q", log)
		}
	})
}

// What middleware returns counts.
func TestMiddlewareSteers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) {
			c.Middleware = []relaybus.Middleware{func(next relaybus.HandlerFunc) relaybus.HandlerFunc {
				return func(ctx context.Context, e *relaybus.RawEvent) error { return relaybus.Permanent(next(ctx, e)) }
			}}
		}, things("h", func(context.Context, *relaybus.RawEvent) error { return errBoom }))
		b.publish(raw("e-1"))
		b.drain()
		if s := b.stats(); s.Dead != 1 {
			t.Errorf("statistics are %+v", s)
		}
	})
}

func TestMiddlewareThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]relaybus.Middleware{
		"returns nil": func(relaybus.HandlerFunc) relaybus.HandlerFunc { return nil },
		"panics":      func(relaybus.HandlerFunc) relaybus.HandlerFunc { panic("secret") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := quiet()
			cfg.Middleware = []relaybus.Middleware{m}
			b, err := relaybus.New(memstore.New(memstore.Config{}), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Subscribe(things("h", ignore)); !errors.Is(err, relaybus.ErrConfiguration) || !strings.Contains(err.Error(), "middleware 0") || strings.Contains(err.Error(), "secret") {
				t.Errorf("Subscribe: %v", err)
			}
		})
	}
}
