package relaybus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// B22, Z9: every handler with due work starts within a few claims, however
// much the others have.
func TestFairClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const handlers = 25
		d := newDesk(t)
		var list []relaybus.Handler
		for i := range handlers {
			list = append(list, relaybus.Handle(fmt.Sprintf("h-%02d", i), []string{fmt.Sprintf("t-%02d", i)}, d.heed))
		}
		b := newBed(t, nil, list...)
		for range 50 {
			b.publish(relaybus.Raw("t-00", []byte(`1`)))
		}
		for i := range handlers {
			for range 20 {
				b.publish(relaybus.Raw(fmt.Sprintf("t-%02d", i), []byte(`1`)))
			}
		}
		b.store.reset()
		b.start()
		started := map[string]bool{}
		calls := 0
		for len(started) < handlers {
			c := d.next()
			started[c.event.Handler] = true
			calls++
			c.reply <- nil
		}
		if calls > 3*handlers {
			t.Errorf("it took %d starts until each of %d handlers had one", calls, handlers)
		}
		for b.stats().Pending+b.stats().Running > 0 {
			synctest.Wait()
			for len(d.calls) > 0 {
				d.next().reply <- nil
			}
			pass(10 * time.Millisecond)
		}
	})
}

// B22: the limit of a handler is kept, and the rest of the slots is for others.
func TestHandlerConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		handle := func(_ context.Context, e *relaybus.RawEvent) error {
			mu.Lock()
			now[e.Handler]++
			most[e.Handler] = max(most[e.Handler], now[e.Handler])
			now["all"]++
			most["all"] = max(most["all"], now["all"])
			mu.Unlock()
			pass(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			now[e.Handler]--
			now["all"]--
			return nil
		}
		b := newBed(t, nil, things("three", handle, relaybus.Concurrency(3)), things("one", handle, relaybus.Concurrency(1)), things("free", handle)).start()
		b.publish(many(200)...)
		pass(time.Minute)
		synctest.Wait()
		if most["three"] != 3 || most["one"] != 1 || most["all"] != 10 || most["free"] < 6 {
			t.Errorf("at once ran %v", most)
		}
		if s := b.stats(); s.Completed != 600 {
			t.Errorf("statistics are %+v", s)
		}
	})
}

// Z9: processes with different handlers don't wait for each other, whatever the
// other one leaves lying.
func TestProcessesWithDifferentHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		a, b := newDesk(t), newDesk(t)
		first := newBedOn(t, s.Instance(), nil, things("a", a.heed)).start()
		newBedOn(t, s.Instance(), nil, things("b", b.heed)).start()
		pass(2 * time.Second) // each has read the other's entry
		first.publish(many(100)...)
		began := time.Now()
		for range 100 { // a never moves on
			b.next().reply <- nil
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("b took %v", took)
		}
		for range 100 {
			a.next().reply <- nil
		}
	})
}
