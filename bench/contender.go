package main

import (
	"context"
	"errors"
	"fmt"
)

// contender is a system that is measured.
type contender struct {
	name string
	// ours is relaybus, which is given no time limit: it must finish.
	ours bool
	// open makes the system, in a fresh database or one where it was before.
	open func(ctx context.Context, e setting) (queue, error)
}

// entry is a contender in one case.
type entry struct {
	contender

	label string
	// workers is how many handlers run at once; 0 stands for the defaults.
	workers int
}

// setting is what a system is opened for.
type setting struct {
	// address is the file or the URL of the database.
	address string
	// existing is a database that the system was opened on before.
	existing bool
	// handlers is how many handlers each event goes to.
	handlers int
	// keyed gives each event an ordering key of its own, where there are such.
	keyed bool
	// publishOnly is a process that only publishes.
	publishOnly bool
	// workers is how many handlers run at once; 0 stands for the system's default.
	workers int
	// defaults leaves every setting as the system has it; otherwise it is tuned
	// for the case as its documentation says.
	defaults bool
}

// queue is an open system.
type queue interface {
	// publish commits one order and n events, numbered from first, in one
	// transaction.
	publish(ctx context.Context, first int64, n int) error
	// count counts what is in the database.
	count(ctx context.Context) (tally, error)
	close() error
}

// tally is what a database holds.
type tally struct {
	orders int64
	// waiting is deliveries that are not finished.
	waiting int64
}

// worker is a queue that also handles.
type worker interface {
	queue
	// load commits n events in as few transactions as is sensible.
	load(ctx context.Context, n int) error
	// work starts handlers. handled is called as a handler starts, done when
	// its completion is durable. stop waits for what runs.
	work(ctx context.Context, handled func(order), done func()) (stop func() error, err error)
}

// open opens a contender, on a new database unless the setting names one. The
// returned function closes it and removes the database.
func (b *bench) open(ctx context.Context, c contender, e setting) (q queue, closeAll func() error, err error) {
	if e.address == "" {
		if e.address, err = b.site.create(ctx, c.name); err != nil {
			return nil, nil, fmt.Errorf("create a database for %s: %w", c.name, err)
		}
	}
	remove := func() error { return b.site.remove(context.WithoutCancel(ctx), e.address) }
	if q, err = c.open(ctx, e); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open %s: %w", c.name, err), remove())
	}
	return q, func() error { return errors.Join(q.close(), remove()) }, nil
}

// openWorker is open for those who also handle.
func (b *bench) openWorker(ctx context.Context, c contender, e setting) (w worker, closeAll func() error, err error) {
	q, closeAll, err := b.open(ctx, c, e)
	if err != nil {
		return nil, nil, err
	}
	w, ok := q.(worker)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("%s does not handle", c.name), closeAll())
	}
	return w, closeAll, nil
}

const loadBatch = 1000

// inBatches calls f for pieces of n.
func inBatches(n int, f func(first int64, n int) error) error {
	for first := 0; first < n; first += loadBatch {
		if err := f(int64(first), min(loadBatch, n-first)); err != nil {
			return err
		}
	}
	return nil
}
