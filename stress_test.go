package relaybus_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// Everything at once, with store errors now and then: nothing is lost, nothing
// deadlocks, no goroutine stays, and the race detector is content.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { everythingAtOnce(t, seed) })
		})
	}
}

// dice is randomness that goroutines share.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func everythingAtOnce(t *testing.T, seed uint64) {
	t.Helper()
	dice := &dice{r: rand.New(rand.NewPCG(seed, 1))}
	s := memstore.New(memstore.Config{History: true})
	var done atomic.Int64
	handle := func(ctx context.Context, _ *relaybus.RawEvent) error {
		switch dice.n(12) {
		case 0:
			return errBoom
		case 1:
			return relaybus.Unavailable(errBoom)
		case 2:
			panic("x")
		case 3:
			<-ctx.Done()
			return ctx.Err()
		case 4:
			pass(3 * time.Second) // whatever the context says
		}
		done.Add(1)
		return nil
	}
	flaky := func(context.Context) error {
		if dice.n(20) == 0 {
			return unavailable()
		}
		return nil
	}
	var wg sync.WaitGroup
	for i := range 3 {
		b := newBedOn(t, s.Instance(), func(c *relaybus.Config) {
			c.LeaseDuration, c.CatalogInterval, c.HandlerTimeout = 2*time.Second, 50*time.Millisecond, time.Second
			c.Concurrency, c.ShutdownTimeout = 4, time.Second
			c.Retry = relaybus.RetryPolicy{MaxAttempts: 1000, Base: 10 * time.Millisecond, Cap: time.Second}
			c.Retention.Interval = relaybus.Never
		}, things("h", handle, relaybus.Concurrency(3)), things("tx", handle, relaybus.Transactional()),
			relaybus.Handle("rated", []string{"thing.*"}, handle, relaybus.Rate(50, time.Second)))
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, o := range []op{opClaim, opSettle, opExtend, opCompleteTx} {
			b.store.failBefore(o, flaky)
		}
		wg.Go(func() {
			for n := range 30 {
				switch dice.n(4) {
				case 0:
					_, _ = b.RunOnce(t.Context())
				case 1:
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					_, _ = b.Drain(ctx)
					cancel()
				case 2:
					tx := b.store.Begin()
					_ = b.PublishTx(t.Context(), tx, raw(fmt.Sprint("tx-", i, "-", n), relaybus.Key("k")))
					pass(time.Duration(dice.n(50)) * time.Millisecond)
					_ = tx.Commit(t.Context())
				default:
					b.publish(raw(fmt.Sprint("e-", i, "-", n), relaybus.Key(strconv.Itoa(n%3))))
				}
				pass(time.Duration(dice.n(20)) * time.Millisecond)
			}
			if i == 0 {
				_ = b.Stop(t.Context())
				return
			}
			for _, o := range []op{opClaim, opSettle, opExtend, opCompleteTx} {
				b.store.failBefore(o, nil)
			}
		})
		t.Cleanup(func() {
			_ = b.Stop(context.WithoutCancel(t.Context()))
			pass(5 * time.Second) // for the handlers that ignore their contexts
		})
	}
	wg.Wait()
	watch := newBedOn(t, s.Instance(), nil)
	for i := 0; ; i++ {
		stats := watch.stats()
		if stats.Pending+stats.Running == 0 {
			if stats.Dead != 0 || stats.Completed == 0 {
				t.Errorf("statistics are %+v", stats)
			}
			break
		}
		if i == 600 {
			t.Fatalf("after 10 minutes there is still %+v", stats)
		}
		pass(time.Second)
	}
	if stats := watch.stats(); done.Load() < stats.Completed {
		t.Errorf("%d completed, but only %d handlers succeeded", stats.Completed, done.Load())
	}
}
