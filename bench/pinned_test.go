package main

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeWorker completes what is published at once, or nothing.
type fakeWorker struct {
	worker

	stuck        bool
	transactions atomic.Int64
	done         func()
}

func (f *fakeWorker) work(_ context.Context, _ func(order), done func()) (stop func() error, err error) {
	f.done = done
	return func() error { return nil }, nil
}

func (f *fakeWorker) publish(_ context.Context, _ int64, n int) error {
	f.transactions.Add(1)
	for range n {
		if !f.stuck {
			f.done()
		}
	}
	return nil
}

func (f *fakeWorker) count(context.Context) (tally, error) {
	return tally{orders: f.transactions.Load()}, nil
}

func TestSteadyKeepsItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := new(fakeWorker)
		s := &steady{worker: f, rate: 1000, batch: 5}
		rates, err := s.run(t.Context(), 4*time.Second, time.Second)
		if err != nil || len(rates) != 4 {
			t.Fatalf("run: %v, %v", rates, err)
		}
		for _, rate := range rates {
			if rate < 980 || rate > 1020 {
				t.Errorf("rates %v, want 1000 each", rates)
			}
		}
		if n := f.transactions.Load(); n < 795 || n > 805 {
			t.Errorf("%d transactions, want 800", n)
		}
	})
}

func TestSteadyWaitsForHandlersThatAreBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeWorker{stuck: true}
		s := &steady{worker: f, rate: 1000, batch: 5}
		if rates, err := s.run(t.Context(), 10*time.Second, time.Second); err == nil {
			t.Errorf("deliveries that nobody completes: %v without an error", rates)
		}
		if n, most := s.published.Load(), int64(1000+pinnedPublishers*5); n > most {
			t.Errorf("%d were published, want no more than %d", n, most)
		}
	})
}
