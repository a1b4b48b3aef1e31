package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const latencyName = "latency"

// latencyCase measures the time from the call that publishes (the transaction
// with its commit is a part of it) to the start of the handler, at a steady
// rate. The default settings are what counts; the peers are also shown with the
// settings that make them fast.
func latencyCase(ctx context.Context, b *bench) error {
	for round := range b.rounds {
		b.logf("latency: round %d", round+1)
		for _, v := range b.platform.latencies(b.options) {
			if !b.takesPart(v.contender) {
				continue
			}
			times, late, err := b.latencyOnce(ctx, v)
			if err != nil {
				return fmt.Errorf("%s: %w", v.label, err)
			}
			for _, p := range []struct {
				name string
				part float64
			}{{"p50", 0.50}, {"p99", 0.99}} {
				variant := fmt.Sprintf("%s at %d/s", p.name, b.rate)
				b.report.add(measurement{Case: latencyName, Variant: variant, System: v.label, Unit: "ms", AtLeast: late > 0},
					percentile(times, p.part))
				b.report.checked(latencyName, variant, v.label)
			}
		}
	}
	return nil
}

// goqitePollers are enough for the rate, and few enough that each of them
// polling every millisecond leaves something of the machine.
const goqitePollers = 2

// patience is how long a peer that can't keep up with the rate may go on after
// the last publish.
const patience = 5 * time.Second

// latencyOnce returns the latencies in milliseconds. late is how many of a peer
// were not handled by the end of its patience; they count with the time that
// they had waited by then.
func (b *bench) latencyOnce(ctx context.Context, e entry) (times []float64, late int, err error) {
	w, closeAll, err := b.openWorker(ctx, e.contender, setting{handlers: 1, workers: e.workers, defaults: e.workers == 0})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	n := max(int(b.latencyTime.Seconds()*float64(b.rate)), 1)
	warm := n / 10
	s := newStopwatch(n + warm)
	stop, err := w.work(ctx, s.handled, s.done)
	if err != nil {
		return nil, 0, fmt.Errorf("start: %w", err)
	}
	published := b.publishAtRate(ctx, w, s, n+warm)
	limit := patience
	if e.ours {
		limit = stalled
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.all:
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := errors.Join(published, stop(), ctx.Err()); err != nil {
		return nil, 0, err
	}
	t, err := w.count(ctx)
	if err != nil {
		return nil, 0, err
	}
	times, late = s.times(warm)
	if t.orders != int64(n+warm) || t.waiting != int64(late) {
		return nil, 0, fmt.Errorf("of %d orders %d are there, and %d deliveries wait, not %d", n+warm, t.orders, t.waiting, late)
	}
	if late > 0 && limit == stalled {
		return nil, 0, fmt.Errorf("%d of %d events were not handled", late, n+warm)
	}
	return times, late, nil
}

// publishAtRate starts a publish in each interval, whether the one before has
// ended or not.
func (b *bench) publishAtRate(ctx context.Context, w worker, s *stopwatch, n int) error {
	ticker := time.NewTicker(time.Second / time.Duration(b.rate))
	defer ticker.Stop()
	var group sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		group.Go(func() {
			s.start(i)
			errs[i] = w.publish(ctx, int64(i), 1)
		})
		<-ticker.C
	}
	group.Wait()
	return errors.Join(errs...)
}

// stopwatch takes the time of numbered orders.
type stopwatch struct {
	mu             sync.Mutex
	started, ended []time.Time
	left           int
	all            chan struct{}
}

func newStopwatch(n int) *stopwatch {
	return &stopwatch{started: make([]time.Time, n), ended: make([]time.Time, n), left: n, all: make(chan struct{})}
}

func (s *stopwatch) start(i int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started[i] = now
}

func (s *stopwatch) handled(o order) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[o.Number].IsZero() {
		s.ended[o.Number] = now
	}
}

func (s *stopwatch) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left == 0 {
		close(s.all)
	}
}

// times returns milliseconds, without the first ones, and how many have not
// ended: those count until now.
func (s *stopwatch) times(skip int) (list []float64, late int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, end := range s.ended {
		if end.IsZero() {
			late++
			end = now
		}
		if i >= skip {
			list = append(list, end.Sub(s.started[i]).Seconds()*1000)
		}
	}
	return list, late
}
