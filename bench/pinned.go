package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	pinnedName = "pinned"
	// pinnedPublishers publish at once, as many transactions a second together.
	pinnedPublishers   = 8
	pinnedTransactions = 200
	mostPinnedRate     = 1_000_000
)

// The labels and variants of the case.
func pinnedLabel(system string) string { return system + ", snapshot pinned" }
func wholeRun(rate int) string         { return thousands(int64(rate)) + "/s wanted, whole run" }
func lastFifth(rate int) string        { return thousands(int64(rate)) + "/s wanted, last fifth" }
func slowest(rate int) string          { return thousands(int64(rate)) + "/s wanted, slowest window" }

// pinnedCase measures steady publishing and handling at once beside a transaction
// that keeps an old snapshot for the whole run, so that nothing dead can be
// cleaned up, and without one.
func pinnedCase(ctx context.Context, b *bench) error {
	for _, c := range b.platform.publishers {
		if !b.takesPart(c) || len(b.only) == 0 && c.name != relaybusName {
			continue
		}
		for _, rate := range b.pinnedRates {
			for _, pinned := range []bool{false, true} {
				if err := b.pinnedOnce(ctx, c, rate, pinned); err != nil {
					return fmt.Errorf("%s, %d/s: %w", c.name, rate, err)
				}
			}
		}
	}
	return nil
}

func (b *bench) pinnedOnce(ctx context.Context, c contender, rate int, pinned bool) (err error) {
	label := c.name
	if pinned {
		label = pinnedLabel(c.name)
	}
	b.logf("pinned: %s, %d/s, %v", label, rate, b.pinnedTime)
	address, err := b.site.create(ctx, c.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.site.remove(context.WithoutCancel(ctx), address)) }()
	q, err := c.open(ctx, setting{address: address, handlers: 1, workers: b.workers})
	if err != nil {
		return err
	}
	release := func() error { return nil }
	if pinned {
		if release, err = pin(ctx, address); err != nil {
			return errors.Join(fmt.Errorf("pin a snapshot: %w", err), q.close())
		}
	}
	// It lets the tables be cleaned up, and so comes after the last look at them.
	defer func() { err = errors.Join(err, release()) }()
	w, ok := q.(worker)
	if !ok {
		return errors.Join(fmt.Errorf("%s does not handle", c.name), q.close())
	}
	s := &steady{worker: w, rate: rate, batch: max(rate/pinnedTransactions, 1)}
	rates, err := s.run(ctx, b.pinnedTime, b.pinnedWindow)
	// The end of its connections also brings their statistics in.
	if err := errors.Join(err, q.close()); err != nil {
		return err
	}
	states, err := tableStates(ctx, address)
	if err != nil {
		return fmt.Errorf("read statistics: %w", err)
	}
	b.reportPinned(label, rate, rates, states)
	return nil
}

func (b *bench) reportPinned(label string, rate int, rates []float64, states []tableState) {
	for _, m := range []struct {
		variant string
		value   float64
	}{
		{wholeRun(rate), mean(rates)},
		{lastFifth(rate), mean(rates[len(rates)-max(len(rates)/5, 1):])},
		{slowest(rate), slices.Min(rates)},
	} {
		b.report.add(measurement{Case: pinnedName, Variant: m.variant, System: label, Unit: "deliveries/s"}, m.value)
		b.report.checked(pinnedName, m.variant, label)
	}
	what := fmt.Sprintf("%s, %s/s wanted", label, thousands(int64(rate)))
	b.report.Series = append(b.report.Series, series{
		Name: what + ": deliveries/s completed in each " + b.pinnedWindow.String(), Values: rates,
	})
	for _, s := range states {
		s.Run = what
		b.report.Tables = append(b.report.Tables, s)
	}
}

// pin opens a transaction whose snapshot nothing that follows is a part of.
func pin(ctx context.Context, address string) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT count(*) FROM orders") // which takes the snapshot
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(tx.Rollback(ctx), conn.Close(ctx))
	}, nil
}

// steady publishes at a rate, and handles what is published.
type steady struct {
	worker

	rate, batch            int
	transactions           atomic.Int64
	published, done, first atomic.Int64
	// slot is when the next transaction is due.
	mu   sync.Mutex
	slot time.Time
}

// run returns the deliveries per second that were completed in each window.
func (s *steady) run(ctx context.Context, duration, window time.Duration) ([]float64, error) {
	stop, err := s.work(ctx, func(order) {}, func() { s.done.Add(1) })
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	s.slot = time.Now()
	var group sync.WaitGroup
	errs := make([]error, pinnedPublishers)
	for i := range errs {
		group.Go(func() {
			for s.await(within) && errs[i] == nil {
				// The last one is finished after the time.
				errs[i] = s.publishBatch(ctx)
			}
			if errs[i] != nil {
				cancel()
			}
		})
	}
	rates := s.sample(within, window)
	group.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, errors.Join(err, stop())
	}
	return rates, s.finish(ctx, stop)
}

func (s *steady) publishBatch(ctx context.Context) error {
	first := s.first.Add(int64(s.batch)) - int64(s.batch) + 1
	if err := s.publish(ctx, first, s.batch); err != nil {
		return err
	}
	s.transactions.Add(1)
	s.published.Add(int64(s.batch))
	return nil
}

// await waits for the next slot, and while the handlers are a second behind: more
// would only measure who is given the processor. It returns false at the end.
func (s *steady) await(ctx context.Context) bool {
	s.mu.Lock()
	s.slot = s.slot.Add(time.Second * time.Duration(s.batch) / time.Duration(s.rate))
	// What can't be kept up with is dropped.
	if late := time.Now().Add(-time.Second); s.slot.Before(late) {
		s.slot = late
	}
	wait := time.Until(s.slot)
	s.mu.Unlock()
	for pause(ctx, wait) {
		if s.published.Load()-s.done.Load() < int64(s.rate) {
			return true
		}
		wait = time.Millisecond
	}
	return false
}

// pause returns false when the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sample takes the rate of each whole window until the context ends.
func (s *steady) sample(ctx context.Context, window time.Duration) (rates []float64) {
	began, before := time.Now(), s.done.Load()
	for next := began.Add(window); pause(ctx, time.Until(next)); next = next.Add(window) {
		now, done := time.Now(), s.done.Load()
		rates = append(rates, float64(done-before)/now.Sub(began).Seconds())
		began, before = now, done
	}
	if len(rates) == 0 || time.Since(began) > window*9/10 {
		rates = append(rates, float64(s.done.Load()-before)/time.Since(began).Seconds())
	}
	return rates
}

// finish waits until everything is handled, and counts.
func (s *steady) finish(ctx context.Context, stop func() error) error {
	within, cancel := context.WithTimeout(ctx, stalled)
	defer cancel()
	for s.done.Load() < s.published.Load() && pause(within, 10*time.Millisecond) {
		continue
	}
	if err := stop(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	t, err := s.count(ctx)
	if err != nil {
		return err
	}
	if n := s.transactions.Load(); t.orders != n || t.waiting != 0 || s.done.Load() != s.published.Load() {
		return fmt.Errorf("of %d transactions %d are there, %d of %d deliveries were completed, and %d wait",
			n, t.orders, s.done.Load(), s.published.Load(), t.waiting)
	}
	return nil
}
