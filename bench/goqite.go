package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"maragu.dev/goqite"
	"maragu.dev/goqite/jobs"
)

// goqiteSchema is schema_sqlite.sql of goqite v0.4.0, which its users copy into
// their migrations.
//
//go:embed goqite.sql
var goqiteSchema string

const (
	goqiteJob = "order"
	// goqitePoll is the wait of an idle worker in a tuned setting.
	goqitePoll = time.Millisecond
)

// goqitePeer is goqite: one queue for each handler, as a message goes to one
// receiver only. Tuned, it is used by its queue alone, which costs less than
// the job runner on top of it; by defaults, with the job runner.
type goqitePeer struct {
	setting

	db     *sql.DB
	orders *orders
	queues []*goqite.Queue
}

func openGoqite(ctx context.Context, e setting) (queue, error) {
	db, err := openDatabase(ctx, e.address)
	if err != nil {
		return nil, err
	}
	g := &goqitePeer{setting: e, db: db}
	if !e.existing {
		if _, err := db.ExecContext(ctx, goqiteSchema); err != nil {
			return nil, errors.Join(fmt.Errorf("create schema: %w", err), db.Close())
		}
	}
	if g.orders, err = newOrders(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	timeout := time.Duration(0)
	if !e.defaults {
		timeout = time.Hour // nothing is received twice while it waits for its turn
	}
	for i := range e.handlers {
		g.queues = append(g.queues, goqite.New(goqite.NewOpts{
			DB: db, Name: fmt.Sprintf("handler-%d", i), Timeout: timeout,
		}))
	}
	return g, nil
}

func (g *goqitePeer) publish(ctx context.Context, first int64, n int) error {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := g.write(ctx, tx, first, n); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (g *goqitePeer) write(ctx context.Context, tx *sql.Tx, first int64, n int) error {
	if err := g.orders.add(ctx, tx, newOrder(first)); err != nil {
		return err
	}
	for i := range n {
		body, err := json.Marshal(newOrder(first + int64(i)))
		if err != nil {
			return err
		}
		for _, q := range g.queues {
			if err := g.send(ctx, tx, q, goqite.Message{Body: body}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *goqitePeer) send(ctx context.Context, tx *sql.Tx, q *goqite.Queue, m goqite.Message) error {
	if !g.defaults {
		return q.SendTx(ctx, tx, m)
	}
	_, err := jobs.CreateTx(ctx, tx, q, goqiteJob, m)
	return err
}

func (g *goqitePeer) load(ctx context.Context, n int) error {
	return inBatches(n, func(first int64, n int) error { return g.publish(ctx, first, n) })
}

//nolint:unparam // The other systems can fail to start.
func (g *goqitePeer) work(ctx context.Context, handled func(order), done func()) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
	}
	for _, q := range g.queues {
		if g.defaults {
			runner := jobs.NewRunner(jobs.NewRunnerOpts{Queue: q})
			runner.Register(goqiteJob, func(_ context.Context, body []byte) error {
				defer done()
				return handleBody(body, handled)
			})
			group.Go(func() { runner.Start(ctx) })
			continue
		}
		for range g.workers {
			group.Go(func() {
				if err := receive(ctx, q, handled, done); err != nil {
					fail(err)
				}
			})
		}
	}
	return func() error {
		cancel()
		group.Wait()
		mu.Lock()
		defer mu.Unlock()
		return failed
	}, nil
}

// receive is one worker of a tuned setting.
func receive(ctx context.Context, q *goqite.Queue, handled func(order), done func()) error {
	// It receives what is there also when the context has ended.
	for ctx.Err() == nil {
		m, err := q.ReceiveAndWait(ctx, goqitePoll)
		if ctx.Err() != nil && m == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if err := handleBody(m.Body, handled); err != nil {
			return err
		}
		if err := q.Delete(context.WithoutCancel(ctx), m.ID); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		done()
	}
	return nil
}

func handleBody(body []byte, handled func(order)) error {
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	handled(o)
	return nil
}

func (g *goqitePeer) count(ctx context.Context) (tally, error) {
	return countTables(ctx, g.db, "SELECT count(*) FROM goqite")
}

func (g *goqitePeer) close() error { return errors.Join(g.orders.close(), g.db.Close()) }
