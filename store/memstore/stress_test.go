package memstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// history is what the workers of the stress test did.
type history struct {
	mu      sync.Mutex
	last    map[string]int64 // by handler and key
	running map[string]bool
	done    map[string]int
	errors  []string
}

func (h *history) begin(c store.Claimed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := c.Lease.Handler + "/" + c.Event.Key
	if c.Event.Key == "" {
		return
	}
	if h.running[key] {
		h.errors = append(h.errors, "two of "+key+" run at once")
	}
	if c.Event.Sequence <= h.last[key] {
		h.errors = append(h.errors, c.Event.ID+" ran out of order")
	}
	h.running[key], h.last[key] = true, c.Event.Sequence
}

func (h *history) end(c store.Claimed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, c.Lease.Handler+"/"+c.Event.Key)
	h.done[c.Event.ID+"/"+c.Lease.Handler]++
}

// I1, I3, I4 without faults: publishers and workers of three instances, each
// with two owners, claim and settle at once; every delivery runs exactly once,
// in the order of its key.
func TestManyWorkersAtOnce(t *testing.T) {
	t.Parallel()
	const publishers, batches, batch = 3, 8, 10
	s := memstore.New(memstore.Config{History: true})
	h := &history{last: make(map[string]int64), running: make(map[string]bool), done: make(map[string]int)}
	const want = publishers * batches * batch * 2
	var work sync.WaitGroup
	ctx := t.Context()
	for p := range publishers {
		work.Go(func() {
			for b := range batches {
				var events []store.NewEvent
				for i := range batch {
					key := fmt.Sprintf("k%d", i%4)
					if i%2 == 0 {
						key = ""
					}
					events = append(events, event(fmt.Sprintf("p%d-%d-%d", p, b, i), key, "mail", "ledger"))
				}
				publish(t, s, events...)
			}
		})
	}
	for i := range 6 {
		instance := s
		if i%2 == 0 {
			instance = s.Instance()
		}
		work.Go(func() { runWorker(ctx, t, instance, fmt.Sprintf("w%d", i), h, want) })
	}
	work.Wait()
	for _, text := range h.errors {
		t.Error(text)
	}
	if len(h.done) != want {
		t.Errorf("%d deliveries were done, want %d", len(h.done), want)
	}
	for name, n := range h.done {
		if n != 1 {
			t.Errorf("%s was done %d times", name, n)
		}
	}
	stats, err := s.Stats(t.Context(), start())
	if err != nil || stats.Completed != want || stats.Pending+stats.Running+stats.Dead != 0 {
		t.Errorf("stats %+v, %v", stats, err)
	}
}

// runWorker claims, runs and settles until everything is done.
func runWorker(ctx context.Context, t *testing.T, s *memstore.Store, owner string, h *history, want int) {
	t.Helper()
	r := store.ClaimRequest{Owner: owner, Limit: 8, Now: start(), Lease: time.Hour}
	for _, id := range []string{"mail", "ledger"} {
		r.Handlers = append(r.Handlers, store.HandlerLimit{Handler: store.Handler{ID: id}, Limit: 5})
	}
	for ctx.Err() == nil {
		h.mu.Lock()
		done := len(h.done) == want
		h.mu.Unlock()
		if done {
			return
		}
		result, err := s.Claim(ctx, r)
		if err != nil {
			t.Errorf("claim: %v", err)
			return
		}
		var settling sync.WaitGroup
		for i, c := range result.Deliveries {
			h.begin(c)
			settling.Go(func() {
				// It counts as done before the store lets its follower start.
				h.end(c)
				one := store.Settlement{Lease: c.Lease, Action: store.Complete}
				if i%3 == 2 {
					if err := completeTx(ctx, s, owner, c.Lease); err != nil {
						t.Errorf("complete in transaction: %v", err)
					}
				} else if ok, err := s.Settle(ctx, owner, []store.Settlement{one}, start()); err != nil || !ok[0] {
					t.Errorf("settle: %v, %v", ok, err)
				}
			})
		}
		if len(result.Deliveries)%2 == 0 {
			settling.Wait()
		} else {
			// The next claim reads while these are completed.
			defer settling.Wait()
		}
	}
}

func completeTx(ctx context.Context, s *memstore.Store, owner string, l store.Lease) error {
	return s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		return s.CompleteTx(ctx, tx, owner, l, start())
	})
}

func BenchmarkClaimFromAMillion(b *testing.B) {
	s := memstore.New(memstore.Config{})
	const n = 1_000_000
	for i := range n / 1000 {
		var events []store.NewEvent
		for j := range 1000 {
			events = append(events, event(fmt.Sprintf("e%d-%d", i, j), "", "busy"))
		}
		tx := s.Begin()
		if _, err := s.Append(b.Context(), tx, events, start()); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	r := store.ClaimRequest{Owner: "w", Limit: 10, Now: start(), Lease: time.Hour}
	for _, id := range []string{"busy", "quiet"} {
		r.Handlers = append(r.Handlers, store.HandlerLimit{Handler: store.Handler{ID: id}, Limit: 10})
	}
	for b.Loop() {
		result, err := s.Claim(b.Context(), r)
		if err != nil || len(result.Deliveries) != 10 {
			b.Fatalf("claimed %d, %v", len(result.Deliveries), err)
		}
		var list []store.Settlement
		for _, c := range result.Deliveries {
			list = append(list, store.Settlement{Lease: c.Lease, Action: store.Complete})
		}
		if _, err := s.Settle(b.Context(), "w", list, start()); err != nil {
			b.Fatal(err)
		}
	}
}
