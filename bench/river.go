package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

// Settings of River.
const (
	// riverCooldown is the least that River allows; its throughput is limited by it.
	riverCooldown = time.Millisecond
	// riverDefaultWorkers has no default in River; this is the number that its
	// documentation uses.
	riverDefaultWorkers = 100
)

// riverPeer is River: one job for each handler. It has no ordering keys.
type riverPeer struct {
	setting

	db     *sql.DB
	orders *orders
	client *river.Client[*sql.Tx]
	// handled is set before the client starts.
	handled func(order)
}

type riverArgs struct {
	Order   order `json:"order"`
	Handler int   `json:"handler"`
}

// Kind names the job.
func (riverArgs) Kind() string { return "order" }

func openRiver(ctx context.Context, e setting) (queue, error) {
	db, err := openDatabase(ctx, e.path)
	if err != nil {
		return nil, err
	}
	r := &riverPeer{setting: e, db: db}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: logger})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("migrate: %w", err), db.Close())
	}
	if r.orders, err = newOrders(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
		r.handled(job.Args.Order)
		return nil
	}))
	cfg := &river.Config{
		Logger:  logger,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverDefaultWorkers}},
		Workers: workers,
	}
	if !e.defaults {
		cfg.FetchCooldown = riverCooldown
		cfg.FetchPollInterval = riverPoll
		if e.workers > 0 {
			cfg.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: e.workers}
		}
	}
	if r.client, err = river.NewClient(riversqlite.New(db), cfg); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

// riverPoll is how often a tuned client asks for jobs by itself: River's own
// signal on SQLite is polled for every 50 ms.
const riverPoll = 10 * time.Millisecond

func (r *riverPeer) publish(ctx context.Context, first int64, n int) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := r.write(ctx, tx, first, n); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (r *riverPeer) write(ctx context.Context, tx *sql.Tx, first int64, n int) error {
	if err := r.orders.add(ctx, tx, newOrder(first)); err != nil {
		return err
	}
	params := make([]river.InsertManyParams, 0, n*r.handlers)
	for i := range n {
		for handler := range r.handlers {
			params = append(params, river.InsertManyParams{Args: riverArgs{newOrder(first + int64(i)), handler}})
		}
	}
	if len(params) == 1 {
		_, err := r.client.InsertTx(ctx, tx, params[0].Args, nil)
		return err
	}
	_, err := r.client.InsertManyFastTx(ctx, tx, params)
	return err
}

func (r *riverPeer) load(ctx context.Context, n int) error {
	return inBatches(n, func(first int64, n int) error { return r.publish(ctx, first, n) })
}

func (r *riverPeer) work(ctx context.Context, handled func(order), done func()) (stop func() error, err error) {
	r.handled = handled
	// A subscription drops what does not fit its channel.
	const room = 1 << 20
	completed, unsubscribe := r.client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: room, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	var group sync.WaitGroup
	group.Go(func() {
		for range completed {
			done()
		}
	})
	if err := r.client.Start(ctx); err != nil {
		unsubscribe()
		group.Wait()
		return nil, err
	}
	return func() error {
		err := r.client.Stop(context.WithoutCancel(ctx))
		unsubscribe()
		group.Wait()
		return err
	}, nil
}

func (r *riverPeer) count(ctx context.Context) (tally, error) {
	return countTables(ctx, r.db, "SELECT count(*) FROM river_job WHERE state <> 'completed'")
}

func (r *riverPeer) close() error { return errors.Join(r.orders.close(), r.db.Close()) }
