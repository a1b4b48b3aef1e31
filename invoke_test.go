package relaybus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
)

func TestInvokeCallsTheHandler(t *testing.T) {
	t.Parallel()
	failure := errors.New("from the handler")
	var got relaybus.Event[int]
	h := relaybus.Define[int]("counted").Handle("h", func(_ context.Context, e *relaybus.Event[int]) error {
		got = *e
		return failure
	})
	e := relaybus.EventOf(store.Event{
		ID: "e-1", Type: "counted", Source: "s", Key: "k", Sequence: 7, Payload: []byte("5"),
		Headers: []byte(`{"tenant":"acme"}`), CorrelationID: "c", CausationID: "p", CreatedAt: time.UnixMilli(1),
	})
	e.Attempt = 2
	if err := h.Invoke(t.Context(), e); !errors.Is(err, failure) {
		t.Errorf("error %v, want the handler's own", err)
	}
	if got.ID != "e-1" || got.Source != "s" || got.Key != "k" || got.Sequence != 7 || got.Payload != 5 ||
		got.Headers.Get("tenant") != "acme" || got.CorrelationID != "c" || got.CausationID != "p" ||
		!got.CreatedAt.Equal(time.UnixMilli(1)) || got.Attempt != 2 {
		t.Errorf("event %+v", got)
	}
}

func TestInvokeRefuses(t *testing.T) {
	t.Parallel()
	h := relaybus.Handle("h", []string{"order.*"}, func(context.Context, *relaybus.RawEvent) error { return nil })
	if err := h.Invoke(t.Context(), &relaybus.RawEvent{Type: "order.placed", Payload: json.RawMessage("1")}); err != nil {
		t.Errorf("error %v for a type that it takes", err)
	}
	if err := h.Invoke(t.Context(), &relaybus.RawEvent{Type: "invoice.sent"}); !errors.Is(err, relaybus.ErrInvalidArgument) {
		t.Errorf("error %v for a type that it does not take", err)
	}
	if err := h.Invoke(t.Context(), nil); !errors.Is(err, relaybus.ErrInvalidArgument) {
		t.Errorf("error %v for no event", err)
	}
	if err := (relaybus.Handler{}).Invoke(t.Context(), &relaybus.RawEvent{}); !errors.Is(err, relaybus.ErrConfiguration) {
		t.Errorf("error %v for no handler", err)
	}
}

func TestSteeringCanBeAskedFor(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for name, test := range map[string]struct {
		err                    error
		permanent, unavailable bool
		delay                  time.Duration
		delayed                bool
	}{
		"nil":         {},
		"plain":       {err: cause},
		"permanent":   {err: fmt.Errorf("wrapped: %w", relaybus.Permanent(cause)), permanent: true},
		"unavailable": {err: relaybus.Unavailable(cause), unavailable: true},
		"retry after": {err: relaybus.RetryAfter(time.Minute, cause), delay: time.Minute, delayed: true},
		"at once":     {err: relaybus.RetryAfter(-1, nil), delayed: true},
		"outermost":   {err: relaybus.Permanent(relaybus.RetryAfter(time.Minute, cause)), permanent: true},
	} {
		if got := relaybus.IsPermanent(test.err); got != test.permanent {
			t.Errorf("%s: permanent is %v", name, got)
		}
		if got := relaybus.IsUnavailable(test.err); got != test.unavailable {
			t.Errorf("%s: unavailable is %v", name, got)
		}
		if delay, ok := relaybus.RetryDelay(test.err); ok != test.delayed || delay != test.delay {
			t.Errorf("%s: delay is %v, %v", name, delay, ok)
		}
	}
}
