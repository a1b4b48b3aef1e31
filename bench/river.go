package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"
)

// Settings of River.
const (
	riverName = "river"
	// riverCooldown is the least that River allows; its throughput is limited by it.
	riverCooldown = time.Millisecond
	// riverDefaultWorkers has no default in River; this is the number that its
	// documentation uses.
	riverDefaultWorkers = 100
)

// riverPeer is River: one job for each handler. It has no ordering keys.
type riverPeer[Tx any] struct {
	setting

	client *river.Client[Tx]
	// transact commits an order and what write does.
	transact func(ctx context.Context, ord order, write func(tx Tx) error) error
	// tally counts, and release closes what the client was opened on.
	tally   func(ctx context.Context) (tally, error)
	release func() error
	// handled is set before the client starts.
	handled func(order)
}

// riverWaiting counts what is not finished.
const riverWaiting = "SELECT count(*) FROM river_job WHERE state <> 'completed'"

type riverArgs struct {
	Order   order `json:"order"`
	Handler int   `json:"handler"`
}

// Kind names the job.
func (riverArgs) Kind() string { return "order" }

// open migrates the database and makes the client, which polls that often where it
// is tuned.
func (r *riverPeer[Tx]) open(ctx context.Context, driver riverdriver.Driver[Tx], poll time.Duration) error {
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
		r.handled(job.Args.Order)
		return nil
	}))
	cfg := &river.Config{
		Logger:  silent(),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverDefaultWorkers}},
		Workers: workers,
	}
	if !r.defaults {
		cfg.FetchCooldown = riverCooldown
		cfg.FetchPollInterval = poll
		if r.workers > 0 {
			cfg.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: r.workers}
		}
	}
	r.client, err = river.NewClient(driver, cfg)
	return err
}

func (r *riverPeer[Tx]) publish(ctx context.Context, first int64, n int) error {
	params := make([]river.InsertManyParams, 0, n*r.handlers)
	for i := range n {
		for handler := range r.handlers {
			params = append(params, river.InsertManyParams{Args: riverArgs{newOrder(first + int64(i)), handler}})
		}
	}
	return r.transact(ctx, newOrder(first), func(tx Tx) error {
		if len(params) == 1 {
			_, err := r.client.InsertTx(ctx, tx, params[0].Args, nil)
			return err
		}
		_, err := r.client.InsertManyFastTx(ctx, tx, params)
		return err
	})
}

func (r *riverPeer[Tx]) load(ctx context.Context, n int) error {
	return inBatches(n, func(first int64, n int) error { return r.publish(ctx, first, n) })
}

func (r *riverPeer[Tx]) work(ctx context.Context, handled func(order), done func()) (stop func() error, err error) {
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

func (r *riverPeer[Tx]) count(ctx context.Context) (tally, error) { return r.tally(ctx) }

func (r *riverPeer[Tx]) close() error { return r.release() }
