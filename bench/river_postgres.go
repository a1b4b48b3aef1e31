package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// riverPostgresPoll is what River's own benchmark uses.
const riverPostgresPoll = 20 * time.Millisecond

func openPostgresRiver(ctx context.Context, e setting) (queue, error) {
	pool, err := openPool(ctx, e.address)
	if err != nil {
		return nil, err
	}
	r := &riverPeer[pgx.Tx]{
		setting: e,
		transact: func(ctx context.Context, ord order, write func(tx pgx.Tx) error) error {
			return withOrder(ctx, pool, ord, write)
		},
		tally: func(ctx context.Context) (tally, error) { return countPool(ctx, pool, riverWaiting) },
		release: func() error {
			pool.Close()
			return nil
		},
	}
	if err := r.open(ctx, riverpgxv5.New(pool), riverPostgresPoll); err != nil {
		return nil, errors.Join(err, r.release())
	}
	return r, nil
}
