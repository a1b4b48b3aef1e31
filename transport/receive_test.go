package transport_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/transport"
)

func TestSubscriptionValidateNamesEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := transport.Subscription{InFlight: -1}.Validate()
	if !errors.Is(err, transport.ErrConfiguration) {
		t.Fatalf("got %v, want a configuration error", err)
	}
	for _, field := range []string{"ID", "Source", "InFlight", "Receive", "Backoff"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}

	valid := transport.Subscription{
		ID:      "orders",
		Source:  "orders.in",
		Receive: func(context.Context, transport.Inbound) error { return nil },
		Backoff: func(context.Context, int) error { return nil },
	}
	if err := valid.Validate(); err != nil {
		t.Errorf("a valid subscription is refused: %v", err)
	}
}
