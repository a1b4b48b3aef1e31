package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// contender is a system that is measured.
type contender struct {
	name string
	// open makes a fresh database and the system on it.
	open func(ctx context.Context, e setting) (queue, error)
}

// setting is what a system is opened for.
type setting struct {
	path string
	// existing is a file that the system was opened on before.
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

func floorContender() contender    { return contender{"floor", openFloor} }
func relaybusContender() contender { return contender{"relaybus", openRelaybus} }
func goqiteContender() contender   { return contender{"goqite", openGoqite} }
func riverContender() contender    { return contender{"river", openRiver} }

// newPath names a file that does not exist.
func (b *bench) newPath(name string) string {
	b.files++
	return filepath.Join(b.dir, fmt.Sprintf("%s-%d.db", name, b.files))
}

// open opens a contender, on a new file unless the setting names one.
func (b *bench) open(ctx context.Context, c contender, e setting) (queue, error) {
	if e.path == "" {
		e.path = b.newPath(c.name)
	}
	q, err := c.open(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", c.name, err)
	}
	return q, nil
}
