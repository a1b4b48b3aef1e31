package relaybus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// clockedStore is a store on a server whose clock is off by some time.
type clockedStore struct {
	*memstore.Store

	off time.Duration
	err error
}

func (s clockedStore) ServerTime(context.Context) (time.Time, error) {
	return time.Now().Add(s.off), s.err
}

// F39: a process whose clock is off by more than a third of the lease does not
// start.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	failed := errors.New("no answer")
	for _, test := range []struct {
		name  string
		store clockedStore
		clock relaybus.Clock
		want  error
	}{
		{"ahead", clockedStore{off: -11 * time.Minute}, nil, relaybus.ErrClockSkew},
		{"behind", clockedStore{off: 11 * time.Minute}, nil, relaybus.ErrClockSkew},
		{"within bounds", clockedStore{off: 9 * time.Minute}, nil, nil},
		{"no answer", clockedStore{err: failed}, nil, failed},
		{"a clock of its own", clockedStore{off: time.Hour}, ownClock{}, nil},
	} {
		test.store.Store = memstore.New(memstore.Config{})
		bus, err := relaybus.New(test.store, relaybus.Config{Source: "test", LeaseDuration: 30 * time.Minute, Clock: test.clock})
		if err != nil {
			t.Fatalf("%s: new: %v", test.name, err)
		}
		err = bus.Start(t.Context())
		if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: start returned %v, want %v", test.name, err, test.want)
		}
		if test.want == nil {
			if err := bus.Stop(t.Context()); err != nil {
				t.Errorf("%s: stop: %v", test.name, err)
			}
		} else if errors.Is(test.want, relaybus.ErrClockSkew) && !errors.Is(err, relaybus.ErrConfiguration) {
			t.Errorf("%s: %v is no configuration error", test.name, err)
		}
	}
}

// ownClock is a clock that somebody put in place of the system's.
type ownClock struct{ relaybus.SystemClock }
