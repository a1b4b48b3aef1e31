package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const drainName = "drain"

// drainCase measures how fast a backlog of no-op deliveries is worked off: from
// the start of the workers to the last durable completion.
func drainCase(ctx context.Context, b *bench) (err error) {
	variant := fmt.Sprintf("%s no-op deliveries, %d at once", thousands(int64(b.drain)), b.workers)
	templates := make(map[string]string)
	defer func() {
		for _, address := range templates {
			err = errors.Join(err, b.site.remove(context.WithoutCancel(ctx), address))
		}
	}()
	var list []entry
	for _, d := range b.platform.drainers(b.options) {
		if !b.takesPart(d.contender) {
			continue
		}
		list = append(list, d)
		if templates[d.name] != "" {
			continue
		}
		b.logf("drain: loading %s", d.name)
		if templates[d.name], err = b.loadOnce(ctx, d.contender); err != nil {
			return fmt.Errorf("%s: load: %w", d.label, err)
		}
	}
	for round := range b.rounds {
		b.logf("drain: round %d", round+1)
		for _, d := range list {
			used := newTiming(b.clocks())
			rate, completed, err := b.drainOnce(ctx, d, templates[d.name], used)
			if err != nil {
				return fmt.Errorf("%s: %w", d.label, err)
			}
			m := measurement{Case: drainName, Variant: variant, System: d.label, Unit: "deliveries/s"}
			b.report.add(m, rate)
			m.Unit = "µs/delivery"
			used.report(b.report, m, completed)
			b.report.checked(drainName, variant, d.label)
			used.checked(b.report, drainName, variant, d.label)
		}
	}
	return nil
}

// loadOnce makes the database with the backlog, which each round gets a copy of.
func (b *bench) loadOnce(ctx context.Context, c contender) (address string, err error) {
	if address, err = b.site.create(ctx, c.name); err != nil {
		return "", err
	}
	q, err := c.open(ctx, setting{address: address, handlers: 1})
	if err != nil {
		return address, err
	}
	err = b.fill(ctx, q)
	if err := errors.Join(err, q.close()); err != nil {
		return address, err
	}
	return address, b.site.rest(ctx, address)
}

func (b *bench) fill(ctx context.Context, q queue) error {
	w, ok := q.(worker)
	if !ok {
		return errors.New("it does not handle")
	}
	if err := w.load(ctx, b.drain); err != nil {
		return err
	}
	t, err := w.count(ctx)
	if err == nil && t.waiting != int64(b.drain) {
		err = fmt.Errorf("%d of %d deliveries are there", t.waiting, b.drain)
	}
	return err
}

// stalled is how long nothing may happen.
const stalled = time.Minute

// drainOnce returns deliveries per second, and how many there were. All others are
// stopped after the window, if there is one.
func (b *bench) drainOnce(ctx context.Context, d entry, template string, used *timing) (rate float64, completed int64, err error) {
	window := b.drainWindow
	if d.ours {
		window = 0
	}
	address, err := b.site.clone(ctx, template)
	if err != nil {
		return 0, 0, fmt.Errorf("copy backlog: %w", err)
	}
	w, closeAll, err := b.openWorker(ctx, d.contender, setting{
		address: address, existing: true, handlers: 1, workers: d.workers, defaults: d.workers == 0,
	})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	var handled, done atomic.Int64
	all := make(chan struct{})
	used.start()
	began := time.Now()
	stop, err := w.work(ctx,
		func(order) { handled.Add(1) },
		func() {
			if done.Add(1) == int64(b.drain) {
				close(all)
			}
		})
	if err != nil {
		return 0, 0, fmt.Errorf("start: %w", err)
	}
	limit := window
	if limit == 0 {
		limit = stalled + time.Duration(b.drain)*time.Millisecond
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-all:
	case <-timer.C:
	case <-ctx.Done():
	}
	took, completed := time.Since(began).Seconds(), done.Load()
	used.stop()
	if err := errors.Join(stop(), ctx.Err()); err != nil {
		return 0, 0, fmt.Errorf("stop: %w", err)
	}
	t, err := w.count(ctx)
	if err != nil {
		return 0, 0, err
	}
	if window == 0 && completed != int64(b.drain) {
		return 0, 0, fmt.Errorf("%d of %d deliveries were completed", completed, b.drain)
	}
	// The end of a window cuts nothing off: what was handled is completed by now.
	if got := handled.Load(); got != done.Load() || t.waiting != int64(b.drain)-got {
		return 0, 0, fmt.Errorf("%d were handled and %d completed, and %d of %d wait", got, done.Load(), t.waiting, b.drain)
	}
	return float64(completed) / took, completed, nil
}
