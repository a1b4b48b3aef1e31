package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/postgres"
)

// openPostgresRelaybus publishes in transactions that the bus opens.
func openPostgresRelaybus(ctx context.Context, e setting) (queue, error) {
	o, _, err := newPostgresRelaybus(ctx, e)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// openJoinedRelaybus publishes in transactions of pgx that the caller opens, and
// does not tell the bus when they are committed.
func openJoinedRelaybus(ctx context.Context, e setting) (queue, error) {
	o, pool, err := newPostgresRelaybus(ctx, e)
	if err != nil {
		return nil, err
	}
	o.join = func(ctx context.Context, ord order, messages []relaybus.Message) error {
		return withOrder(ctx, pool, ord, func(tx pgx.Tx) error {
			return o.bus.PublishTx(ctx, postgres.Join(tx), messages...)
		})
	}
	return o, nil
}

func newPostgresRelaybus(ctx context.Context, e setting) (*ours, *pgxpool.Pool, error) {
	pool, s, err := openPoolAndStore(ctx, e.address)
	if err != nil {
		return nil, nil, err
	}
	o := &ours{
		setting: e,
		order:   func(ctx context.Context, ord order) error { return addOrder(ctx, postgres.Tx(ctx), ord) },
		tally: func(ctx context.Context) (tally, error) {
			return countPool(ctx, pool, "SELECT count(*) FROM relaybus_deliveries")
		},
		release: func() error { return closeStore(s, pool) },
	}
	if err := o.start(ctx, s); err != nil {
		return nil, nil, errors.Join(err, o.release())
	}
	return o, pool, nil
}

func openPoolAndStore(ctx context.Context, address string) (*pgxpool.Pool, *postgres.Store, error) {
	pool, err := openPool(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	s, err := postgres.New(pool, postgres.Config{Logger: silent()}) //nolint:contextcheck // It does not connect.
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, s, nil
}

func closeStore(s *postgres.Store, pool *pgxpool.Pool) error {
	err := s.Close()
	pool.Close()
	return err
}
