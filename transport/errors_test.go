package transport_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/relaybus-go/relaybus/transport"
)

func TestErrorKeepsClassAndCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("reset by peer")
	err := fmt.Errorf("route: %w", transport.NewError("send message", transport.ErrUnavailable, "to orders", cause))

	if !errors.Is(err, transport.ErrUnavailable) || !errors.Is(err, cause) {
		t.Errorf("%v does not match its class and its cause", err)
	}
	if errors.Is(err, transport.ErrTimeout) {
		t.Errorf("%v matches another class", err)
	}
	var typed *transport.Error
	if !errors.As(err, &typed) || typed.Op != "send message" {
		t.Errorf("errors.As gives %+v", typed)
	}
	if want := "route: send message: broker unavailable: to orders: reset by peer"; err.Error() != want {
		t.Errorf("text %q, want %q", err, want)
	}
	if got, want := transport.NewError("connect", transport.ErrClosed, "", nil).Error(), "connect: transport is closed"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

func TestPredicatesCoverEveryClass(t *testing.T) {
	t.Parallel()
	tests := []struct {
		class             error
		outage, permanent bool
	}{
		{transport.ErrConfiguration, false, false},
		{transport.ErrUnavailable, true, false},
		{transport.ErrTimeout, true, false},
		{transport.ErrNotConnected, true, false},
		{transport.ErrClosed, true, false},
		{transport.ErrUnroutable, false, false},
		{transport.ErrNacked, false, false},
		{transport.ErrTooLarge, false, true},
		{transport.ErrRefused, false, true},
		{transport.ErrReject, false, false},
		{context.DeadlineExceeded, false, false},
		{nil, false, false},
	}
	for _, tt := range tests {
		err := tt.class
		if err != nil {
			err = transport.NewError("send message", tt.class, "", nil)
		}
		if got := transport.IsOutage(err); got != tt.outage {
			t.Errorf("IsOutage(%v) = %v", tt.class, got)
		}
		if got := transport.IsPermanent(err); got != tt.permanent {
			t.Errorf("IsPermanent(%v) = %v", tt.class, got)
		}
	}
}
