package dispatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/internal/dispatch"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// pausesOf returns the times between listeners each of which lasts as long as lasts says, and then breaks.
func pausesOf(t *testing.T, lasts []time.Duration) []time.Duration {
	t.Helper()
	var pauses []time.Duration
	synctest.Test(t, func(t *testing.T) {
		e := dispatch.New(dispatch.Config{
			Store: memstore.New(memstore.Config{}), Clock: clock{}, Owner: "w", Concurrency: 1, BatchSize: 1, MostBatch: 1,
			Poll: time.Second, Lease: time.Minute, Grace: time.Second, Observer: deafObserver{},
		})
		done := make(chan struct{})
		var ended time.Time
		n := 0
		e.Start(t.Context(), func(ctx context.Context, signal func()) error {
			if n > 0 {
				pauses = append(pauses, time.Since(ended))
			}
			if n == len(lasts) {
				close(done)
				<-ctx.Done()
				return nil
			}
			signal() // as a listener does for what it has missed
			<-time.After(lasts[n])
			n++
			ended = time.Now()
			return errors.New("the connection is lost")
		})
		<-done
		if err := e.Stop(context.WithoutCancel(t.Context()), time.Second); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return pauses
}

// Listening that ends at once is begun again after a growing time, and soon after it had lasted.
func TestListeningBeginsAgainSoonAfterItLasted(t *testing.T) {
	t.Parallel()
	lasts := make([]time.Duration, 10)
	lasts[8] = time.Minute
	pauses := pausesOf(t, lasts)
	for i, pause := range pauses[1:8] {
		if pause <= pauses[i] {
			t.Errorf("a listener that broke at once was begun again after %v, and then after %v", pauses[i], pause)
		}
	}
	if pauses[8] != pauses[0] {
		t.Errorf("after a minute of listening it was begun again after %v, want %v", pauses[8], pauses[0])
	}
}
