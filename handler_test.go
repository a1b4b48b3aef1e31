package relaybus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func line() string {
	_, _, n, _ := runtime.Caller(1)
	return fmt.Sprint("handler_test.go:", n)
}

// B9: two handlers with one id are refused, and the error names both places.
func TestDuplicateHandler(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	handle := func(context.Context, *relaybus.Event[order]) error { return nil }
	first, firstLine := orderPlaced().Handle("same", handle), line()
	second, secondLine := relaybus.Handle("same", []string{"*"}, ignore), line()
	alias, aliasLine := relaybus.Handle("new", []string{"*"}, ignore, relaybus.Aliases("same")), line()

	check := func(err error, lines ...string) {
		t.Helper()
		var dup *relaybus.DuplicateHandlerError
		if !errors.As(err, &dup) || !errors.Is(err, relaybus.ErrConfiguration) || dup.ID != "same" {
			t.Fatalf("Subscribe: %v", err)
		}
		for _, l := range lines {
			if !strings.Contains(err.Error(), l) {
				t.Errorf("the error does not name %s: %v", l, err)
			}
		}
	}
	check(b.Subscribe(first, second), firstLine, secondLine)
	if n := len(b.Handlers()); n != 0 {
		t.Errorf("%d handlers of a refused Subscribe are registered", n)
	}
	if err := b.Subscribe(first); err != nil {
		t.Fatal(err)
	}
	check(b.Subscribe(second), firstLine, secondLine)
	check(b.Subscribe(alias), firstLine, aliasLine)
	check(b.Subscribe(relaybus.Handle("same2", []string{"*"}, ignore), relaybus.Handle("x", []string{"*"}, ignore, relaybus.Aliases("y", "same"))), firstLine)
}

// B9, F3: what can't be is refused when subscribing, all of it at once.
func TestHandlerIsChecked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	b := newBed(t, func(c *relaybus.Config) { c.Concurrency = 5 })
	for name, h := range map[string]relaybus.Handler{
		"empty id":             things("", ignore),
		"long id":              things(long, ignore),
		"id with NUL":          things("a\x00", ignore),
		"id of invalid UTF-8":  things("\xff", ignore),
		"nil function":         things("h", nil),
		"nil typed function":   orderPlaced().Handle("h", nil),
		"zero handler":         {},
		"no type":              relaybus.Handle("h", nil, ignore),
		"empty type":           relaybus.Handle("h", []string{""}, ignore),
		"star inside":          relaybus.Handle("h", []string{"a.*.b"}, ignore),
		"star without a dot":   relaybus.Handle("h", []string{"a*"}, ignore),
		"only dot star":        relaybus.Handle("h", []string{".*"}, ignore),
		"empty alias":          things("h", ignore, relaybus.Aliases("")),
		"long alias":           things("h", ignore, relaybus.Aliases(long)),
		"own id as alias":      things("h", ignore, relaybus.Aliases("h")),
		"no concurrency":       things("h", ignore, relaybus.Concurrency(0)),
		"negative concurrency": things("h", ignore, relaybus.Concurrency(-1)),
		"too much concurrency": things("h", ignore, relaybus.Concurrency(6)),
		"no timeout":           things("h", ignore, relaybus.Timeout(0)),
		"negative timeout":     things("h", ignore, relaybus.Timeout(-1)),
		"absurd timeout":       things("h", ignore, relaybus.Timeout(1<<63-1)),
		"timeout = lease":      things("h", ignore, relaybus.Transactional(), relaybus.Timeout(30*time.Second)),
		"no rate":              things("h", ignore, relaybus.Rate(0, time.Second)),
		"rate per nothing":     things("h", ignore, relaybus.Rate(1, 0)),
		"negative rate":        things("h", ignore, relaybus.Rate(-1, -1)),
	} {
		err := b.Subscribe(h)
		if !errors.Is(err, relaybus.ErrConfiguration) || !strings.HasPrefix(err.Error(), "subscribe: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := b.Subscribe(things("", nil, relaybus.Concurrency(-1)), things("ok", ignore), relaybus.Handle("other", nil, ignore))
	for _, text := range []string{"id is empty", "function is nil", "Concurrency -1", `"other"`, "takes no event type", "handler_test.go:"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q: %v", text, err)
		}
	}
	if n := len(b.Handlers()); n != 0 {
		t.Errorf("%d handlers are registered", n)
	}
	if err := b.Subscribe(things("h", ignore, nil, relaybus.Concurrency(5), relaybus.Timeout(time.Hour))); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

func TestHandlersOfABus(t *testing.T) {
	t.Parallel()
	types := []string{"a", "b.*"}
	h := relaybus.Handle("h", types, ignore, relaybus.Aliases("old"), relaybus.Concurrency(3), relaybus.HoldKey())
	types[0] = "changed"
	b := newBed(t, nil, h, orderPlaced().Handle("g", func(context.Context, *relaybus.Event[order]) error { return nil }, relaybus.Transactional()))
	list := b.Handlers()
	if len(list) != 2 || h.ID() != "h" {
		t.Fatalf("handlers are %+v", list)
	}
	one, two := list[0], list[1]
	if one.ID != "h" || !slices.Equal(one.Types, []string{"a", "b.*"}) || !slices.Equal(one.Aliases, []string{"old"}) || one.Concurrency != 3 || !one.HoldKey || one.Transactional {
		t.Errorf("h is %+v", one)
	}
	if two.ID != "g" || !slices.Equal(two.Types, []string{"order.placed.v1"}) || two.Concurrency != 10 || !two.Transactional || !strings.Contains(two.Origin, "handler_test.go:") {
		t.Errorf("g is %+v", two)
	}
}

// B2: by name, by pattern, by several.
func TestHandlerTypes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got trail
		handle := func(_ context.Context, e *relaybus.RawEvent) error {
			got.add(e.Handler + " " + e.Type)
			return nil
		}
		b := newBed(t, nil,
			relaybus.Handle("all", []string{"*"}, handle), relaybus.Handle("orders", []string{"order.*"}, handle),
			relaybus.Handle("several", []string{"order.placed", "bill.*", "bill.sent"}, handle))
		for _, name := range []string{"order.placed", "order.x.y", "order", "orders.placed", "bill.sent", "ORDER.placed"} {
			b.publish(relaybus.Raw(name, json.RawMessage(`1`)))
		}
		b.drain()
		want := []string{
			"all ORDER.placed", "all bill.sent", "all order", "all order.placed", "all order.x.y", "all orders.placed",
			"orders order.placed", "orders order.x.y", "several bill.sent", "several order.placed",
		}
		if list := slices.Sorted(slices.Values(got.took())); !slices.Equal(list, want) {
			t.Errorf("got %q", list)
		}
	})
}

// B12: a transactional handler's writes, its publishes and its completion
// commit together, or not at all.
func TestTransactionalHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bed
		writes := 0
		b = newBed(t, nil, things("h", func(ctx context.Context, e *relaybus.RawEvent) error {
			memstore.Tx(ctx).OnCommit(func() { writes++ })
			if err := b.Publish(ctx, relaybus.Raw("other", json.RawMessage(`1`), relaybus.ID(fmt.Sprint(e.ID, "-", e.Attempt)))); err != nil {
				return err
			}
			if err := b.Transaction(ctx, func(ctx context.Context) error {
				return b.Publish(ctx, relaybus.Raw("other", json.RawMessage(`1`)))
			}); err != nil {
				return err
			}
			if e.Attempt < 3 {
				return errBoom
			}
			return nil
		}, relaybus.Transactional()))
		b.publish(raw("e-1"))
		b.seen.took()
		for range 3 {
			b.drain()
			pass(5 * time.Second)
		}
		if writes != 1 {
			t.Errorf("%d effects, want 1", writes)
		}
		for id, want := range map[string]bool{"e-1-1": false, "e-1-2": false, "e-1-3": true} {
			if _, _, err := b.Event(t.Context(), id); (err == nil) != want {
				t.Errorf("event %s: %v", id, err)
			}
		}
		if d := b.only(relaybus.Filter{Handler: "h"}); d.Status != relaybus.StatusCompleted || d.Attempts != 2 {
			t.Errorf("delivery is %+v", d)
		}
		seen := b.seen.took()
		if n := len(seen); n < 8 || seen[len(seen)-1] != "succeeded h e-1 3" {
			t.Errorf("hooks: %q", seen)
		}
		if n := b.store.count(opSettle); n != 2 {
			t.Errorf("%d settlements, want 2: the failures", n)
		}
	})
}

// B7, B12: the time budget holds for a transactional handler; its lease is not
// renewed for it.
func TestTransactionalHandlerBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		b := newBed(t, nil, things("h", d.heed, relaybus.Transactional(), relaybus.Timeout(25*time.Second))).start()
		b.publish(raw("e-1"))
		began := time.Now()
		c := d.next()
		b.store.reset()
		<-c.ctx.Done()
		if took := time.Since(began); took != 25*time.Second {
			t.Errorf("the context ended after %v", took)
		}
		synctest.Wait()
		if n := b.store.count(opExtend); n != 0 {
			t.Errorf("%d renewals", n)
		}
		var late *relaybus.TransactionTimeoutError
		if err := b.seen.lastErr(); !errors.As(err, &late) || !errors.Is(err, relaybus.ErrHandlerTimeout) || !errors.Is(err, relaybus.ErrTimeout) {
			t.Errorf("the hook was told %v", err)
		}
		if d := b.only(relaybus.Filter{}); d.Attempts != 1 || d.Lost != 0 || d.Status != relaybus.StatusPending {
			t.Errorf("delivery is %+v", d)
		}
		d.next().reply <- nil
	})
}

// Z8: the lease is extended before the start if it would not outlast the budget;
// if that can't be, nothing is charged.
func TestTransactionalHandlerExtendsBefore(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{nil, unavailable()} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t)
				slow := newDesk(t)
				b := newBed(t, func(c *relaybus.Config) { c.Concurrency = 1; c.BatchSize = 2 },
					things("h", d.heed, relaybus.Transactional(), relaybus.Timeout(28*time.Second)),
					relaybus.Handle("other", []string{"other"}, slow.heed))
				b.start()
				b.store.failBefore(opExtend, times(1, fault))
				b.store.reset()
				b.publish(raw("e-1"))
				if fault != nil {
					d.idle()
					synctest.Wait()
					if d := b.only(relaybus.Filter{}); d.Attempts != 0 {
						t.Errorf("delivery is %+v", d)
					}
				}
				c := d.next()
				if c.event.Attempt != 1 {
					t.Errorf("attempt %d", c.event.Attempt)
				}
				if n := b.store.count(opExtend); n < 1 {
					t.Errorf("%d extensions, want one before the start", n)
				}
				c.reply <- nil
			})
		})
	}
}

// F04: a lost commit reply of a transactional handler: the delivery ends once.
func TestTransactionalCommitReplyIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		effects := 0
		b := newBed(t, nil, things("h", func(ctx context.Context, _ *relaybus.RawEvent) error {
			memstore.Tx(ctx).OnCommit(func() { effects++ })
			return nil
		}, relaybus.Transactional()))
		b.publish(raw("e-1"))
		b.store.failAfter(opTransact, times(1, unknown()))
		if _, err := b.Drain(t.Context()); !errors.Is(err, relaybus.ErrHeldBack) {
			t.Errorf("Drain: %v", err) // the store was down
		}
		pass(time.Minute)
		b.drain()
		if d := b.only(relaybus.Filter{}); effects != 1 || d.Status != relaybus.StatusCompleted {
			t.Errorf("%d effects, delivery is %+v", effects, d)
		}
	})
}

// F16: a transactional handler whose lease was lost changes nothing.
func TestTransactionalHandlerLosesLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		effects := 0
		d, other := newDesk(t), newDesk(t)
		effect := func(d *desk) relaybus.HandlerFunc {
			return func(ctx context.Context, e *relaybus.RawEvent) error {
				memstore.Tx(ctx).OnCommit(func() { effects++ })
				return d.handle(context.WithoutCancel(ctx), e)
			}
		}
		b := newBedOn(t, s, func(c *relaybus.Config) { c.TransactionTimeout = 29 * time.Second }, things("h", effect(d), relaybus.Transactional())).start()
		b.publish(raw("e-1"))
		stalled := d.next()
		b.store.failBefore(opClaim, func(context.Context) error { return unavailable() })
		b.store.failBefore(opExtend, func(context.Context) error { return unavailable() })
		newBedOn(t, s.Instance(), nil, things("h", effect(other), relaybus.Transactional())).start()
		second := other.next()
		if second.event.Attempt != 2 {
			t.Errorf("attempt %d", second.event.Attempt)
		}
		stalled.reply <- nil
		synctest.Wait()
		if effects != 0 {
			t.Error("the stalled one committed")
		}
		second.reply <- nil
		synctest.Wait()
		if effects != 1 {
			t.Errorf("%d effects, want 1", effects)
		}
	})
}

// serial is a memory store with one write transaction at a time.
type serial struct{ *memstore.Store }

func (s serial) Features() store.Features {
	f := s.Store.Features()
	f.SerialTransactions, f.TransactionBudget = true, 2*time.Second
	return f
}

// B12 on a store with one write transaction: such handlers run one at a time,
// beside the others, with a shorter budget.
func TestSerialTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet()
		cfg.Retry = relaybus.RetryPolicy{Base: time.Millisecond, NoJitter: true}
		b, err := relaybus.New(serial{memstore.New(memstore.Config{})}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		tx, plain := newDesk(t), newDesk(t)
		if err := b.Subscribe(things("tx-1", tx.handle, relaybus.Transactional()), things("tx-2", tx.handle, relaybus.Transactional()), things("plain", plain.heed)); err != nil {
			t.Fatal(err)
		}
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Transaction(t.Context(), func(ctx context.Context) error { return b.Publish(ctx, many(5)...) }); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			plain.next().reply <- nil
		}
		began := time.Now()
		hung := tx.next()
		tx.idle()
		<-hung.ctx.Done()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the budget is %v", took)
		}
		pass(time.Minute)
		tx.idle() // the transaction of the hung one is still open
		hung.reply <- nil
		for range 10 {
			c := tx.next()
			tx.idle()
			c.reply <- nil
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
}

// A handler does not find the transaction of whoever happens to drain.
func TestHandlerIsOutsideCallersTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bed
		b = newBed(t, nil, things("h", func(ctx context.Context, _ *relaybus.RawEvent) error {
			if _, ok := memstore.TxFrom(ctx); ok {
				t.Error("the handler's context has a transaction")
			}
			if err := b.Publish(ctx, raw("lost")); !errors.Is(err, relaybus.ErrNoTransaction) {
				t.Errorf("Publish: %v", err)
			}
			return nil
		}))
		b.publish(raw("e-1"))
		err := b.Transaction(t.Context(), func(ctx context.Context) error {
			n, err := b.Drain(ctx)
			if n != 1 {
				t.Errorf("Drain ran %d", n)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
