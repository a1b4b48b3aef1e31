package relaybustest_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/relaybustest"
)

// wantText compares a failure line by line, so that trailing newlines don't
// matter.
func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	if text := strings.Join(want, "\n"); got != text {
		t.Errorf("got:\n%s\nwant:\n%s", got, text)
	}
}

func TestFailuresShowWhatIsThere(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{},
		ok("mail"),
		failing("ledger", relaybus.Permanent(errors.New("no such account")), relaybus.HoldKey()),
		failing("slow", errors.New("try later"), relaybus.Retry(relaybus.RetryPolicy{Base: time.Second, NoJitter: true})))
	publish(t, b,
		orderPlaced.New(order{ID: "o-1", Cents: 5}, relaybus.Key("o-1")),
		relaybus.Raw("audit", json.RawMessage(`"`+strings.Repeat("x", 300)+`"`)))
	b.Drain(t.Context())

	f := newFakeTB(t)
	b.AssertPublished(f, orderPlaced, 2)
	wantText(t, f.failure(t),
		"published events of type order.placed.v1: got 1, want 2",
		"all published events:",
		`  event-1  order.placed.v1  key o-1  {"id":"o-1","cents":5}`,
		`  event-2  audit            -        "`+strings.Repeat("x", 199)+"…")

	b.AssertHandled(f, "mail", 0)
	wantText(t, f.failure(t),
		"events handled by mail: got 1, want 0",
		"handled:",
		"  event-1",
		"its other deliveries:",
		"  none")
	b.AssertHandled(f, "slow", 1)
	wantText(t, f.failure(t),
		"events handled by slow: got 0, want 1",
		"handled:",
		"  none",
		"its other deliveries:",
		`  slow  event-1  order.placed.v1  key o-1  pending  attempts 1  due 2000-01-01T00:00:01.000Z  error "try later"`)

	b.AssertDead(f, "ledger", 0)
	wantText(t, f.failure(t),
		"dead deliveries of ledger: got 1, want 0",
		"its deliveries:",
		`  ledger  event-1  order.placed.v1  key o-1  dead, holds its key  attempts 1  due 2000-01-01T00:00:00.000Z  error "no such account"`)
	b.AssertNoDead(f)
	if text := f.failure(t); !strings.HasPrefix(text, "dead deliveries: got 1, want none\n  ledger  event-1") {
		t.Errorf("failure %q", text)
	}

	place(t, b, "o-1") // waits behind the dead one that holds its key
	b.Drain(t.Context())
	b.AssertDrained(f)
	wantText(t, f.failure(t),
		"deliveries that are due or run at 2000-01-01T00:00:00.000Z: got 1, want none",
		"  ledger  event-3  order.placed.v1  key o-1  pending  attempts 0  due 2000-01-01T00:00:00.000Z")

	// What is as it should be fails nothing.
	b.AssertPublished(f, orderPlaced, 2)
	b.AssertPublished(f, orderInvoiced, 0)
	b.AssertHandled(f, "mail", 2)
	b.AssertDead(f, "ledger", 1)
	b.AssertDead(f, "mail", 0)
	f.wantNone(t)
}

func TestStagedFailures(t *testing.T) {
	t.Parallel()
	f := newFakeTB(t)
	b := relaybustest.New(f, relaybus.Config{})
	err := b.Transaction(t.Context(), func(ctx context.Context) error {
		b.AssertStaged(ctx, f, orderPlaced, 1)
		wantText(t, f.failure(t),
			"staged events of type order.placed.v1: got 0, want 1",
			"all staged events:",
			"  none")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Staged(t.Context())
	if text := f.failure(t); !strings.Contains(text, "no open transaction") {
		t.Errorf("failure %q", text)
	}
	f.end()
	f.wantNone(t)
}

func TestAssertionsKnowTheirHandlers(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{}, ok("mail", relaybus.Aliases("e-mail")))
	peer := b.Peer(t, relaybus.Config{}, ok("ledger"))
	peer.Drain(t.Context())
	f := newFakeTB(t)
	b.AssertDead(f, "mial", 0)
	wantText(t, f.failure(t), "there is no handler mial; the handlers are: ledger, mail")
	b.AssertHandled(f, "mial", 0)
	wantText(t, f.failure(t), "there is no handler mial; the handlers are: ledger, mail")
	b.AssertDead(f, "ledger", 0)
	f.wantNone(t)
}

func TestAssertDrainedLooksAtTheTime(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{}, ok("mail"))
	publish(t, b, orderPlaced.New(order{}, relaybus.Delay(time.Second)))
	b.AssertDrained(t)
	b.Clock.Advance(time.Second)
	f := newFakeTB(t)
	b.AssertDrained(f)
	f.failure(t)
	b.Drain(t.Context())
	b.AssertDrained(t)
}

func TestEventsOfAnotherGoType(t *testing.T) {
	t.Parallel()
	f := newFakeTB(t)
	b := relaybustest.New(f, relaybus.Config{})
	publish(t, b, relaybus.Raw("order.placed.v1", json.RawMessage(`{"cents":"five"}`)), orderPlaced.New(order{ID: "o-1"}))
	if events := relaybustest.Events(b, orderPlaced); len(events) != 1 || events[0].Payload.ID != "o-1" {
		t.Errorf("events %+v", events)
	}
	if text := f.failure(t); !strings.Contains(text, "event-1") {
		t.Errorf("failure %q", text)
	}
}
