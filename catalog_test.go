package relaybus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// B23: a process that only publishes needs no handler code, started or not, and
// whichever way it publishes.
func TestCatalogServesPublishers(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{false, true} {
		for _, how := range []string{"Transaction", "PublishTx", "Optional"} {
			t.Run(fmt.Sprint(how, " started ", started), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := memstore.New(memstore.Config{})
					d := newDesk(t)
					newBedOn(t, s, nil, things("h", d.heed)).start()
					p := newBedOn(t, s.Instance(), func(c *relaybus.Config) { c.PublishOnly = true; c.TransactionMode = relaybus.Optional })
					if started {
						p.start()
					}
					switch how {
					case "Transaction":
						p.publish(raw("e-1"))
					case "PublishTx":
						tx := p.store.Begin()
						if err := p.PublishTx(t.Context(), tx, raw("e-1")); err != nil {
							t.Fatal(err)
						}
						if err := tx.Commit(t.Context()); err != nil {
							t.Fatal(err)
						}
					default:
						if err := p.Publish(t.Context(), raw("e-1")); err != nil {
							t.Fatal(err)
						}
					}
					d.next().reply <- nil
				})
			})
		}
	}
}

// B23: new handlers are found within the interval; retired ones get nothing
// more.
func TestCatalogIsRefreshed(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{false, true} {
		t.Run(fmt.Sprint("started ", started), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(memstore.Config{})
				p := newBedOn(t, s, func(c *relaybus.Config) { c.PublishOnly = true })
				if started {
					p.start()
				}
				p.publish(raw("e-1"))
				if n := p.stats().Pending; n != 0 {
					t.Errorf("%d deliveries", n)
				}
				d := newDesk(t)
				h := newBedOn(t, s.Instance(), nil, things("h", d.heed)).start()
				pass(1100 * time.Millisecond)
				p.publish(raw("e-2"))
				d.next().reply <- nil
				if err := p.Retire(t.Context(), "h"); err != nil {
					t.Fatal(err)
				}
				p.publish(raw("e-3"))
				d.idle()
				// Its own process, too, publishes no more for it, once it has read so.
				pass(1100 * time.Millisecond)
				h.publish(raw("e-4"))
				d.idle()
				list, err := p.Catalog(t.Context())
				if err != nil || len(list) != 1 || list[0].ID != "h" || !list[0].Retired || !slices.Equal(list[0].Types, []string{"thing.done"}) {
					t.Errorf("Catalog: %+v, %v", list, err)
				}
				if err := p.Retire(t.Context(), "none"); !errors.Is(err, relaybus.ErrNotFound) {
					t.Errorf("Retire: %v", err)
				}
			})
		})
	}
}

// B23: turned off, deliveries come from the own handlers alone, and nothing is
// recorded.
func TestNoCatalog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		newBedOn(t, s, nil, things("theirs", ignore)).drain()
		b := newBedOn(t, s.Instance(), func(c *relaybus.Config) { c.NoCatalog = true }, things("own", ignore))
		b.publish(raw("e-1"))
		b.drain()
		if list := b.list(relaybus.Filter{}); len(list) != 0 {
			t.Errorf("left: %+v", list)
		}
		_, deliveries, err := b.Event(t.Context(), "e-1")
		if err != nil || len(deliveries) != 0 {
			t.Errorf("Event: %+v, %v", deliveries, err)
		}
		entries, err := b.Catalog(t.Context())
		if err != nil || slices.ContainsFunc(entries, func(e relaybus.HandlerEntry) bool { return e.ID == "own" && len(e.Types) > 0 }) {
			t.Errorf("Catalog: %+v, %v", entries, err)
		}
	})
}

// A catalogue that can't be read at all must not make an event lose handlers of
// others; one that was read before serves on.
func TestCatalogIsUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		b.store.failBefore(opHandlers, times(1, unavailable()))
		if err := b.tryPublish(raw("e-1")); !errors.Is(err, relaybus.ErrUnavailable) || relaybus.OutcomeOf(err) != relaybus.NotCommitted {
			t.Errorf("publish: %v", err)
		}
		b.publish(raw("e-1"))
		pass(2 * time.Second)
		b.store.failBefore(opHandlers, times(1, unavailable()))
		b.publish(raw("e-2"))
		if n := b.drain(); n != 2 {
			t.Errorf("%d ran", n)
		}
	})
}

// The catalogue may change while handlers run.
func TestCatalogChangesWhileRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		b := newBedOn(t, s, func(c *relaybus.Config) { c.CatalogInterval = time.Millisecond }, things("h", func(context.Context, *relaybus.RawEvent) error {
			pass(time.Millisecond)
			return nil
		}, relaybus.Timeout(time.Second))).start()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				other := newBedOn(t, s.Instance(), nil, relaybus.Handle(fmt.Sprint("h-", i), []string{"x"}, ignore, relaybus.Aliases("h")))
				pass(time.Duration(i) * 3 * time.Millisecond)
				other.drain()
			})
		}
		for i := range 100 {
			b.publish(raw(fmt.Sprint("e-", i)))
			pass(time.Millisecond)
		}
		wg.Wait()
		pass(time.Second)
		synctest.Wait()
		if s := b.stats(); s.Pending+s.Running != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// B21: deliveries of a handler that nobody has are reported at start.
func TestOrphans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		gone := newBedOn(t, s, func(c *relaybus.Config) { c.NoCatalog = true }, things("gone", ignore), things("retired", ignore))
		gone.publish(raw("e-1"), raw("e-2"))
		steps, log := &stepHook{}, newLogBook()
		b := newBedOn(t, s.Instance(), func(c *relaybus.Config) { c.Hooks = append(c.Hooks, steps); c.Logger = log.logger() }, things("h", ignore)).start()
		if len(steps.orphans) != 2 || steps.orphans[0] != (relaybus.Orphaned{Handler: "gone", Deliveries: 2}) {
			t.Errorf("the hook was told %+v", steps.orphans)
		}
		if log.count("nobody has") != 2 {
			t.Errorf("log: %s", log)
		}
		list, err := b.Orphans(t.Context())
		if err != nil || len(list) != 2 {
			t.Errorf("Orphans: %+v, %v", list, err)
		}
		// Dropped, or drained by an explicit handler, they are gone.
		if n, err := b.Drop(t.Context(), "gone"); n != 2 || err != nil {
			t.Errorf("Drop: %d, %v", n, err)
		}
		var ran trail
		drain := newBedOn(t, s.Instance(), nil, things("retired", ran.handle, relaybus.DrainOnly()))
		drain.publish(raw("e-3"))
		drain.drain()
		if got := slices.Sorted(slices.Values(ran.took())); !slices.Equal(got, []string{"e-1", "e-2"}) {
			t.Errorf("DrainOnly ran %q", got)
		}
		if list, err := b.Orphans(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("Orphans: %+v, %v", list, err)
		}
	})
}
