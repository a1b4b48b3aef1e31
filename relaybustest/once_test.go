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
	"github.com/relaybus-go/relaybus/store/memstore"
)

func TestHandleOnceGivesTheHandlerItsEvent(t *testing.T) {
	t.Parallel()
	var got relaybus.Event[order]
	h := orderPlaced.Handle("h", func(_ context.Context, e *relaybus.Event[order]) error {
		got = *e
		return nil
	})
	err := relaybustest.HandleAttempt(t.Context(), h, orderPlaced.New(order{ID: "o-1", Cents: 5},
		relaybus.Key("k"), relaybus.Header("tenant", "acme"), relaybus.CorrelationID("c")), 3)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != "event-1" || got.Type != orderPlaced.Name() || got.Payload != (order{ID: "o-1", Cents: 5}) ||
		got.Key != "k" || got.Sequence == 0 || got.Headers.Get("tenant") != "acme" || got.CorrelationID != "c" ||
		got.Handler != "h" || got.Attempt != 3 ||
		!got.CreatedAt.Equal(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("event %+v", got)
	}
	if err := relaybustest.HandleOnce(t.Context(), h, orderPlaced.New(order{}, relaybus.ID("mine"))); err != nil {
		t.Fatal(err)
	}
	if got.ID != "mine" || got.Attempt != 1 {
		t.Errorf("event %+v", got)
	}
}

func TestHandleOnceReturnsTheErrorAsItIs(t *testing.T) {
	t.Parallel()
	failure := errors.New("no such account")
	err := relaybustest.HandleOnce(t.Context(), failing("h", relaybus.Permanent(failure)), orderPlaced.New(order{}))
	if !errors.Is(err, failure) || !relaybus.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
	if err := relaybustest.HandleOnce(t.Context(), ok("h"), orderPlaced.New(order{})); err != nil {
		t.Errorf("error %v", err)
	}
}

func TestHandleOnceHandsTheContextOn(t *testing.T) {
	t.Parallel()
	cause := errors.New("over")
	h := orderPlaced.Handle("h", func(ctx context.Context, _ *relaybus.Event[order]) error { return context.Cause(ctx) })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := relaybustest.HandleOnce(ctx, h, orderPlaced.New(order{})); !errors.Is(err, cause) {
		t.Errorf("error %v, want the cause of the context", err)
	}
}

func TestHandleOnceInATransaction(t *testing.T) {
	t.Parallel()
	b := relaybustest.New(t, relaybus.Config{})
	effects := 0
	h := orderPlaced.Handle("h", func(ctx context.Context, e *relaybus.Event[order]) error {
		memstore.Tx(ctx).OnCommit(func() { effects++ })
		return b.Publish(ctx, orderInvoiced.New(e.Payload))
	}, relaybus.Transactional())
	err := b.Transaction(t.Context(), func(ctx context.Context) error {
		if err := relaybustest.HandleOnce(ctx, h, orderPlaced.New(order{}, relaybus.ID("cause"))); err != nil {
			return err
		}
		b.AssertStaged(ctx, t, orderInvoiced, 1)
		b.AssertStaged(ctx, t, orderPlaced, 0)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if effects != 1 {
		t.Errorf("%d effects, want 1", effects)
	}
	if events := b.Published(); len(events) != 1 || events[0].CausationID != "cause" || events[0].CorrelationID != "cause" {
		t.Errorf("published %+v", events)
	}
}

func TestHandleOnceTakesWhatSomeBusTakes(t *testing.T) {
	t.Parallel()
	h := ok("h", relaybus.Concurrency(500), relaybus.Transactional(), relaybus.Timeout(time.Hour))
	large := orderPlaced.New(order{ID: strings.Repeat("x", 2<<20)})
	if err := relaybustest.HandleOnce(t.Context(), h, large); err != nil {
		t.Error(err)
	}
	drain := ok("h", relaybus.DrainOnly())
	if err := relaybustest.HandleOnce(t.Context(), drain, orderPlaced.New(order{})); err != nil {
		t.Error(err)
	}
}

func TestHandleOnceRefusesWhatTheBusRefuses(t *testing.T) {
	t.Parallel()
	h := ok("h")
	for name, test := range map[string]struct {
		handler relaybus.Handler
		message relaybus.Message
		want    error
	}{
		"message":        {h, orderPlaced.New(order{}, relaybus.Key("")), relaybus.ErrValidation},
		"payload":        {h, relaybus.Raw(orderPlaced.Name(), json.RawMessage(`{`)), relaybus.ErrValidation},
		"other Go type":  {h, relaybus.Define[int](orderPlaced.Name()).New(1), relaybus.ErrValidation},
		"other type":     {h, orderInvoiced.New(order{}), relaybus.ErrInvalidArgument},
		"handler":        {ok(""), orderPlaced.New(order{}), relaybus.ErrConfiguration},
		"empty handler":  {relaybus.Handler{}, orderPlaced.New(order{}), relaybus.ErrConfiguration},
		"nil function":   {orderPlaced.Handle("h", nil), orderPlaced.New(order{}), relaybus.ErrConfiguration},
		"wrong content":  {h, relaybus.Raw(orderPlaced.Name(), json.RawMessage(`[]`)), nil},
		"handler option": {ok("h", relaybus.Timeout(-1)), orderPlaced.New(order{}), relaybus.ErrConfiguration},
	} {
		err := relaybustest.HandleOnce(t.Context(), test.handler, test.message)
		if err == nil || (test.want != nil && !errors.Is(err, test.want)) {
			t.Errorf("%s: error %v, want %v", name, err, test.want)
		}
		if test.want == nil && !relaybus.IsPermanent(err) {
			t.Errorf("%s: error %v, want a permanent one", name, err)
		}
	}
}
