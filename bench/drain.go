package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// drainer is a contender with a file that holds the backlog.
type drainer struct {
	contender

	label    string
	workers  int
	template string
}

// drainers are the contenders with the given number of workers, and the peers
// again with the number that suits them better: goqite fetches one message at
// a time, so further workers are in each other's way; River fetches as many
// jobs as it has workers, and completes them together.
func (b *bench) drainers() []*drainer {
	all := []*drainer{
		{contender: relaybusContender(), label: "relaybus", workers: b.workers},
		{contender: goqiteContender(), label: "goqite", workers: b.workers},
		{contender: riverContender(), label: "river", workers: b.workers},
		{contender: goqiteContender(), label: goqiteFewWorkers, workers: 1},
		{contender: riverContender(), label: riverManyWorkers, workers: 10 * b.workers},
	}
	var list []*drainer
	for _, d := range all {
		if b.takesPart(d.contender) {
			list = append(list, d)
		}
	}
	return list
}

const (
	drainName     = "drain"
	drainCostName = "drain, processor time"

	goqiteFewWorkers = "goqite, 1 worker"
	riverManyWorkers = "river, 10 × the workers"
)

// drainCase measures how fast a backlog of no-op deliveries is worked off: from
// the start of the workers to the last durable completion.
func drainCase(ctx context.Context, b *bench) error {
	variant := fmt.Sprintf("%s no-op deliveries, %d at once", thousands(int64(b.drain)), b.workers)
	list := b.drainers()
	templates := make(map[string]string)
	for _, d := range list {
		if templates[d.name] == "" {
			b.logf("drain: loading %s", d.name)
			path, err := b.loadOnce(ctx, d.contender)
			if err != nil {
				return fmt.Errorf("%s: load: %w", d.label, err)
			}
			templates[d.name] = path
		}
		d.template = templates[d.name]
	}
	for round := range b.rounds {
		b.logf("drain: round %d", round+1)
		for _, d := range list {
			window := b.drainWindow
			if d.name == relaybusContender().name {
				window = 0
			}
			rate, cost, err := b.drainOnce(ctx, d, window)
			if err != nil {
				return fmt.Errorf("%s: %w", d.label, err)
			}
			b.report.add(measurement{Case: drainName, Variant: variant, System: d.label, Unit: "deliveries/s"}, rate)
			b.report.checked(drainName, variant, d.label)
			if cost > 0 {
				b.report.add(measurement{Case: drainCostName, Variant: variant, System: d.label, Unit: "µs/delivery"}, cost)
				b.report.checked(drainCostName, variant, d.label)
			}
		}
	}
	return nil
}

// loadOnce makes the file with the backlog, which each round gets a copy of.
func (b *bench) loadOnce(ctx context.Context, c contender) (path string, err error) {
	path = b.newPath(c.name)
	q, err := b.open(ctx, c, setting{path: path, handlers: 1})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, q.close()) }() // which puts the log into the file
	w, ok := q.(worker)
	if !ok {
		return "", errors.New("it does not handle")
	}
	if err := w.load(ctx, b.drain); err != nil {
		return "", err
	}
	t, err := w.count(ctx)
	if err == nil && t.waiting != int64(b.drain) {
		err = fmt.Errorf("%d of %d deliveries are there", t.waiting, b.drain)
	}
	return path, err
}

// stalled is how long nothing may happen.
const stalled = time.Minute

// drainOnce returns deliveries per second, and the microseconds of processor
// time that each took.
func (b *bench) drainOnce(ctx context.Context, d *drainer, window time.Duration) (rate, cost float64, err error) {
	e := setting{path: b.newPath(d.name), existing: true, handlers: 1, workers: d.workers}
	if err := copyFile(e.path, d.template); err != nil {
		return 0, 0, fmt.Errorf("copy backlog: %w", err)
	}
	q, err := b.open(ctx, d.contender, e)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, q.close(), os.Remove(e.path)) }()
	w, ok := q.(worker)
	if !ok {
		return 0, 0, errors.New("it does not handle")
	}
	var handled, done atomic.Int64
	all := make(chan struct{})
	began, used := time.Now(), processorTime()
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
	used = processorTime() - used
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
	return float64(completed) / took, used.Seconds() * 1e6 / float64(max(completed, 1)), nil
}

// copyFile copies a database that nobody has open.
func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
