package relaybus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func ignore(context.Context, *relaybus.RawEvent) error { return nil }

// B2: what is published typed comes back typed, with everything that was said
// about it.
func TestPublishReachesTypedHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got *relaybus.Event[order]
		b := newBed(t, func(c *relaybus.Config) { c.Source = "shop" },
			orderPlaced().Handle("mail", func(_ context.Context, e *relaybus.Event[order]) error {
				got = e
				return nil
			}))
		at := time.Now().UTC()
		b.publish(orderPlaced().New(order{ID: "o-1", Total: 7},
			relaybus.ID("e-1"), relaybus.Key("o-1"), relaybus.CorrelationID("c-1"), relaybus.CausationID("u-1"),
			relaybus.Header("tenant", "acme"), relaybus.Header("n", 7)))
		if n := b.drain(); n != 1 {
			t.Fatalf("Drain ran %d deliveries, want 1", n)
		}
		if got == nil || got.Payload != (order{ID: "o-1", Total: 7}) {
			t.Fatalf("handler got %+v", got)
		}
		if got.ID != "e-1" || got.Type != "order.placed.v1" || got.Source != "shop" || got.Key != "o-1" || got.Sequence < 1 ||
			got.CorrelationID != "c-1" || got.CausationID != "u-1" || got.Handler != "mail" || got.Attempt != 1 || !got.CreatedAt.Equal(at) {
			t.Errorf("event is %+v", got)
		}
		if h := string(got.Headers.JSON()); h != `{"tenant":"acme","n":7}` {
			t.Errorf("headers are %s", h)
		}
		if got.Headers.Get("tenant") != "acme" || got.Headers.Get("n") != "" || got.Headers.Get("none") != "" {
			t.Errorf("Get returns %q, %q, %q", got.Headers.Get("tenant"), got.Headers.Get("n"), got.Headers.Get("none"))
		}
	})
}

// B3: publishing joins the transaction, and is nothing without it.
func TestPublishIsAtomicWithTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil, things("h", ignore))
		err := b.Transaction(t.Context(), func(ctx context.Context) error {
			if err := b.Publish(ctx, raw("e-1")); err != nil {
				t.Errorf("Publish: %v", err)
			}
			return errBoom
		})
		if !errors.Is(err, errBoom) || relaybus.OutcomeOf(err) != relaybus.NotCommitted {
			t.Errorf("Transaction returned %v", err)
		}
		if n := b.drain(); n != 0 {
			t.Errorf("a rolled-back event had %d deliveries", n)
		}
		if _, _, err := b.Event(t.Context(), "e-1"); !errors.Is(err, relaybus.ErrNotFound) {
			t.Errorf("Event of a rolled-back publish: %v", err)
		}
		if seen := b.seen.took(); len(seen) != 0 {
			t.Errorf("hooks were told of a rolled-back publish: %q", seen)
		}
		b.publish(raw("e-1"))
		if n := b.drain(); n != 1 {
			t.Errorf("Drain ran %d, want 1", n)
		}
	})
}

func TestPublishWithoutTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		required := newBed(t, nil, things("h", ignore))
		if err := required.Publish(t.Context(), raw("e-1")); !errors.Is(err, relaybus.ErrNoTransaction) {
			t.Errorf("Publish in mode Required: %v", err)
		}
		if required.store.count(opTransact)+required.store.count(opAppend) != 0 {
			t.Error("a refused publish reached the store")
		}
		optional := newBed(t, func(c *relaybus.Config) { c.TransactionMode = relaybus.Optional }, things("h", ignore))
		if err := optional.Publish(t.Context(), raw("e-1")); err != nil {
			t.Fatalf("Publish in mode Optional: %v", err)
		}
		if seen := optional.seen.took(); !slices.Equal(seen, []string{"published [e-1] 1 committed"}) {
			t.Errorf("hooks: %q", seen)
		}
		optional.store.reset()
		if err := optional.Publish(t.Context()); err != nil || optional.store.count(opTransact) != 0 {
			t.Errorf("an empty Publish: %v, %d transactions", err, optional.store.count(opTransact))
		}
	})
}

func TestPublishTx(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := newBed(t, nil, things("h", ignore))
		tx := b.store.Begin()
		if err := b.PublishTx(ctx, tx, raw("e-1")); err != nil {
			t.Fatalf("PublishTx: %v", err)
		}
		if seen := b.seen.took(); !slices.Equal(seen, []string{"published [e-1] 1 staged"}) {
			t.Errorf("hooks: %q", seen)
		}
		if n := b.drain(); n != 0 {
			t.Errorf("%d deliveries before the commit", n)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if n := b.drain(); n != 1 {
			t.Errorf("%d deliveries after the commit, want 1", n)
		}

		if err := b.PublishTx(ctx, tx, raw("e-2")); !errors.Is(err, relaybus.ErrTxDone) {
			t.Errorf("into a finished transaction: %v", err)
		}
		if err := b.PublishTx(ctx, memstore.New(memstore.Config{}).Begin(), raw("e-2")); !errors.Is(err, relaybus.ErrForeignTx) {
			t.Errorf("into another database's transaction: %v", err)
		}
		if err := b.PublishTx(ctx, nil, raw("e-2")); !errors.Is(err, relaybus.ErrNoTransaction) {
			t.Errorf("into no transaction: %v", err)
		}
		if err := b.PublishTx(ctx, (*memstore.Transaction)(nil), raw("e-2")); !errors.Is(err, relaybus.ErrForeignTx) {
			t.Errorf("into a nil transaction: %v", err)
		}
		err := b.Transaction(ctx, func(ctx context.Context) error {
			other := b.store.Begin()
			defer func() { _ = other.Rollback() }()
			if err := b.PublishTx(ctx, other, raw("e-2")); !errors.Is(err, relaybus.ErrAmbiguousTx) {
				t.Errorf("beside another open transaction: %v", err)
			}
			same := store.TxsFrom(ctx)[0]
			return b.PublishTx(ctx, same, raw("e-3"))
		})
		if err != nil {
			t.Errorf("the same transaction twice: %v", err)
		}
	})
}

// B3: a foreign or finished transaction is never an autocommit, not even in
// mode Optional.
func TestPublishNeverLeavesTransactionSilently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		optional := func(c *relaybus.Config) { c.TransactionMode = relaybus.Optional }
		a, b := newBed(t, optional, things("h", ignore)), newBed(t, optional, things("h", ignore))
		var kept context.Context
		err := a.Transaction(t.Context(), func(ctx context.Context) error {
			kept = ctx //nolint:fatcontext // the test keeps a context too long, on purpose
			if err := b.Publish(ctx, raw("e-1")); !errors.Is(err, relaybus.ErrForeignTx) {
				t.Errorf("Publish in another database's transaction: %v", err)
			}
			// A transaction of its own is another matter.
			return b.Transaction(ctx, func(ctx context.Context) error {
				return errors.Join(b.Publish(ctx, raw("e-2")), a.Publish(ctx, raw("e-3")))
			})
		})
		if err != nil {
			t.Fatalf("nested transactions of two buses: %v", err)
		}
		if err := a.Publish(kept, raw("e-4")); !errors.Is(err, relaybus.ErrTxDone) {
			t.Errorf("Publish in a finished transaction: %v", err)
		}
		if err := a.Transaction(kept, func(context.Context) error { return nil }); !errors.Is(err, relaybus.ErrTxDone) {
			t.Errorf("Transaction in a finished one: %v", err)
		}
		if n := a.drain(); n != 1 {
			t.Errorf("a has %d deliveries, want 1", n)
		}
		if n := b.drain(); n != 1 {
			t.Errorf("b has %d deliveries, want 1", n)
		}
	})
}

// B4: however many events, one append.
func TestPublishIsOneAppend(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 10, 1000} {
		for _, keyed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d keyed %v", n, keyed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t, nil, things("h", ignore), relaybus.Handle("g", []string{"*"}, ignore))
					messages := make([]relaybus.Message, n)
					for i := range messages {
						id := fmt.Sprint("e-", i)
						messages[i] = raw(id)
						if keyed {
							messages[i] = raw(id, relaybus.Key(id))
						}
					}
					b.store.reset()
					b.publish(messages...)
					if a, x := b.store.count(opAppend), b.store.count(opTransact); a != 1 || x != 1 {
						t.Errorf("%d appends in %d transactions, want 1 in 1", a, x)
					}
					if got := b.stats().Pending; got != int64(2*n) {
						t.Errorf("%d deliveries, want %d", got, 2*n)
					}
				})
			})
		}
	}
}

// B6: a known id adds only deliveries for handlers that the event never had.
func TestPublishKnownID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		one := newBedOn(t, s, nil, things("one", ignore))
		one.publish(raw("e-1"), raw("e-1"))
		if n := one.drain(); n != 1 {
			t.Fatalf("%d deliveries, want 1", n)
		}
		one.publish(raw("e-1"))
		if n := one.drain(); n != 0 {
			t.Errorf("a repeated publish ran a finished handler again, %d times", n)
		}
		var ran []string
		two := newBedOn(t, s, nil, things("two", func(_ context.Context, e *relaybus.RawEvent) error {
			ran = append(ran, e.Handler+" "+e.ID)
			return nil
		}))
		if n := two.drain(); n != 0 {
			t.Errorf("a new handler got %d old events by itself", n)
		}
		two.publish(raw("e-1"))
		if n := two.drain(); n != 1 || !slices.Equal(ran, []string{"two e-1"}) {
			t.Errorf("after a repeated publish %d ran: %v", n, ran)
		}
	})
}

// B5: delay and due time.
func TestPublishDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed)).start()
		began := time.Now()
		b.publish(raw("due", relaybus.DueAt(began.Add(1500*time.Millisecond))), raw("delay", relaybus.Delay(90*time.Second+time.Microsecond)),
			raw("past", relaybus.DueAt(began.Add(-time.Hour))))
		for _, want := range []struct {
			id    string
			after time.Duration
		}{{"past", 0}, {"due", 1500 * time.Millisecond}, {"delay", 90*time.Second + time.Millisecond}} {
			c := d.next()
			if c.event.ID != want.id || time.Since(began) != want.after {
				t.Errorf("%s came after %v, want %s after %v", c.event.ID, time.Since(began), want.id, want.after)
			}
			c.reply <- nil
		}
	})
}

// B5: inside a handler, correlation and causation are taken over.
func TestPublishInsideHandlerIsLinked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bed
		follow := func(ctx context.Context, e *relaybus.RawEvent) error {
			if e.Type != "thing.done" {
				return nil
			}
			return b.Transaction(ctx, func(ctx context.Context) error {
				return b.Publish(ctx,
					relaybus.Raw("next", []byte(`1`), relaybus.ID("of-"+e.ID)),
					relaybus.Raw("next", []byte(`1`), relaybus.ID("own-"+e.ID), relaybus.CorrelationID("own"), relaybus.CausationID("mine")))
			})
		}
		b = newBed(t, nil, relaybus.Handle("h", []string{"*"}, follow))
		b.publish(raw("e-1"), raw("e-2", relaybus.CorrelationID("c-2")))
		if n := b.drain(); n != 6 {
			t.Fatalf("Drain ran %d, want 6 with the follow-ups", n)
		}
		for id, want := range map[string][2]string{
			"of-e-1": {"e-1", "e-1"}, "of-e-2": {"c-2", "e-2"}, "own-e-1": {"own", "mine"}, "e-1": {"", ""},
		} {
			e, _, err := b.Event(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if got := [2]string{e.CorrelationID, e.CausationID}; got != want {
				t.Errorf("%s has correlation and causation %q, want %q", id, got, want)
			}
		}
	})
}

// F04, I7: what a publish says is true, whatever becomes of the commit's reply.
func TestPublishOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *relaybus.Config) { c.TransactionMode = relaybus.Optional }, things("h", ignore))

		b.store.failAfter(opTransact, times(1, unknown()))
		err := b.Publish(t.Context(), raw("e-1"))
		if relaybus.OutcomeOf(err) != relaybus.Unknown || !errors.Is(err, relaybus.ErrOutcomeUnknown) || !errors.Is(err, relaybus.ErrUnavailable) {
			t.Errorf("a lost commit reply: %v", err)
		}
		if seen := b.seen.took(); !slices.Equal(seen, []string{"published [e-1] 1 unknown"}) {
			t.Errorf("hooks: %q", seen)
		}
		if err := b.Publish(t.Context(), raw("e-1")); err != nil {
			t.Errorf("publishing again: %v", err)
		}
		if n := b.drain(); n != 1 {
			t.Errorf("%d deliveries of e-1, want 1", n)
		}
		b.seen.took()

		b.store.failBefore(opTransact, times(1, unavailable()))
		err = b.Publish(t.Context(), raw("e-2"))
		if relaybus.OutcomeOf(err) != relaybus.NotCommitted || !errors.Is(err, relaybus.ErrUnavailable) {
			t.Errorf("a refused transaction: %v", err)
		}
		b.store.failBefore(opAppend, times(1, unavailable()))
		if err := b.Publish(t.Context(), raw("e-2")); relaybus.OutcomeOf(err) != relaybus.NotCommitted {
			t.Errorf("a refused append: %v", err)
		}
		if seen := b.seen.took(); len(seen) != 0 {
			t.Errorf("hooks were told of what was not committed: %q", seen)
		}
		if n := b.drain(); n != 0 {
			t.Errorf("%d deliveries of e-2, want none", n)
		}
		// An unknown outcome of something else inside a transaction that was
		// rolled back is not one of this transaction: no hook hears of it.
		_ = b.Transaction(t.Context(), func(ctx context.Context) error {
			return errors.Join(b.Publish(ctx, raw("e-3")), unknown())
		})
		if seen := b.seen.took(); len(seen) != 0 {
			t.Errorf("hooks were told of a rolled-back publish: %q", seen)
		}
	})
}

// B23: an event that nobody takes is counted and logged once.
func TestPublishUnhandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := newLogBook()
		b := newBed(t, func(c *relaybus.Config) { c.Logger = log.logger() })
		b.publish(raw("e-1"), raw("e-2"))
		b.publish(raw("e-3"))
		b.publish(raw("e-3")) // it is there
		if seen := b.seen.took(); !slices.Equal(seen, []string{
			"published [e-1 e-2] 0 committed", "unhandled e-1", "unhandled e-2",
			"published [e-3] 0 committed", "unhandled e-3",
		}) {
			t.Errorf("hooks: %q", seen)
		}
		if n := log.count("no handler takes"); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}
		for i := range 2000 { // F52: made-up types don't fill the memory, or the log
			b.publish(relaybus.Raw(fmt.Sprint("type-", i), []byte(`1`)))
		}
		if n := log.count("no handler takes"); n != 1000 {
			t.Errorf("logged %d times, want 1000", n)
		}
	})
}
