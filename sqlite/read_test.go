package sqlite_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// S15: however far a read has come when its context ends, that is what the error
// says.
func TestReadEndsWithContext(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{})
	b.publish(b.events(300, "", "h", "g")...)
	cut := 0
	for i := range 400 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
		_, err := b.s.Claim(ctx, b.request("w-"+strconv.Itoa(i), 1, "h", "g"))
		cancel()
		if err == nil {
			continue
		}
		cut++
		if !errors.Is(err, store.ErrTimeout) || errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("a read whose context ended: %v", err)
		}
	}
	if cut == 0 {
		t.Error("no read was cut short")
	}
}
