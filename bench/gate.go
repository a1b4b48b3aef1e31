package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
)

// gate sits between a subscriber of watermill-sql and the database. A message that
// was acknowledged is done when the transaction of its batch is committed, which
// only the database sees. And it stops the subscriber between two batches: one
// that is closed within a batch of the queue schema deletes messages of it that
// nobody has handled.
type gate struct {
	watermillsql.Beginner

	done func()
	// turn holds a token while a batch is in progress.
	turn chan struct{}
	// closed ends the waiting for a turn.
	closed chan struct{}

	mu       sync.Mutex
	unproven int
	failed   error
}

func newGate(db watermillsql.Beginner, done func()) *gate {
	return &gate{Beginner: db, done: done, turn: make(chan struct{}, 1), closed: make(chan struct{})}
}

var errGateShut = errors.New("the subscriber is being stopped")

// BeginTx begins the transaction of a batch.
func (g *gate) BeginTx(ctx context.Context, options *sql.TxOptions) (watermillsql.Tx, error) {
	select {
	case g.turn <- struct{}{}:
	case <-g.closed:
		return nil, errGateShut
	}
	tx, err := g.Beginner.BeginTx(ctx, options)
	if err != nil {
		<-g.turn
		return nil, err
	}
	return gatedTx{tx, g}, nil
}

// handled counts a message that is about to be acknowledged.
func (g *gate) handled() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unproven++
}

func (g *gate) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = errors.Join(g.failed, err)
}

// shut waits for the end of the current batch and lets none begin.
func (g *gate) shut() {
	g.turn <- struct{}{}
	close(g.closed)
}

func (g *gate) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// ended ends a batch. It is all of a batch or nothing.
func (g *gate) ended(committed bool) {
	g.mu.Lock()
	n := g.unproven
	g.unproven = 0
	g.mu.Unlock()
	if committed {
		for range n {
			g.done()
		}
	}
	<-g.turn
}

// gatedTx is the transaction of a batch.
type gatedTx struct {
	watermillsql.Tx

	gate *gate
}

// Commit commits, and tells what is done.
func (t gatedTx) Commit() error {
	err := t.Tx.Commit()
	t.gate.ended(err == nil)
	return err
}

// Rollback rolls back.
func (t gatedTx) Rollback() error {
	err := t.Tx.Rollback()
	t.gate.ended(false)
	return err
}
