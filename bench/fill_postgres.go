package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// filler fills the tables of relaybus on PostgreSQL: the first events by the store
// itself, which so learns the handler, and the others by COPY, as millions would
// take too long.
type filler struct {
	pool  *pgxpool.Pool
	store *postgres.Store
	ref   int32
}

func openPostgresStore(ctx context.Context, address string) (*claimStore, error) {
	pool, s, err := openPoolAndStore(ctx, address)
	if err != nil {
		return nil, err
	}
	if err := s.Setup(ctx); err != nil {
		return nil, errors.Join(err, closeStore(s, pool))
	}
	f := &filler{pool: pool, store: s}
	return &claimStore{Store: s, close: func() error { return closeStore(s, pool) }, add: f.add}, nil
}

func (f *filler) add(ctx context.Context, events []store.NewEvent) error {
	if f.ref != 0 && events[0].Key == "" {
		return pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error { return f.copy(ctx, tx, events) })
	}
	if err := addTo(f.store)(ctx, events); err != nil {
		return err
	}
	return f.pool.QueryRow(ctx, "SELECT ref FROM relaybus_handlers WHERE id = $1", events[0].Handlers[0].ID).Scan(&f.ref)
}

func (f *filler) copy(ctx context.Context, tx pgx.Tx, events []store.NewEvent) error {
	rows, err := tx.Query(ctx, "SELECT nextval(pg_get_serial_sequence('relaybus_events', 'seq')) FROM generate_series(1, $1)", len(events))
	if err != nil {
		return err
	}
	sequences, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("take sequences: %w", err)
	}
	handlers := []int32{f.ref}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"relaybus_events"},
		[]string{"seq", "created", "id", "type", "source", "handlers", "payload"},
		pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
			e := &events[i]
			return []any{sequences[i], e.CreatedAt.UnixMilli(), e.ID, e.Type, e.Source, handlers, string(e.Payload)}, nil
		}))
	if err != nil {
		return fmt.Errorf("copy events: %w", err)
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"relaybus_deliveries"},
		[]string{"event", "due", "updated", "handler", "lane"},
		pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
			e := &events[i]
			return []any{sequences[i], e.DueAt.UnixMilli(), e.CreatedAt.UnixMilli(), f.ref, int16(lane.Of("", e.ID))}, nil
		}))
	if err != nil {
		return fmt.Errorf("copy deliveries: %w", err)
	}
	return nil
}
