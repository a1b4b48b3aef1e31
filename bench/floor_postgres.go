package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// floorPublish writes by hand what relaybus writes, in as many round trips: the
// rows of its tables, with its indexes, by one statement for all events and
// deliveries of a transaction. It looks nothing up, and takes no lock on a key.
const (
	floorPublish = `WITH e AS (
			INSERT INTO relaybus_events (id, type, source, key, created, handlers, payload)
			VALUES ($1::text, $2::text, 'bench', $3::text, $4::bigint, $5::integer[], $6::text) RETURNING seq)
		INSERT INTO relaybus_deliveries (event, handler, lane, due, key, updated)
		SELECT e.seq, h, $7::smallint, $4::bigint, $3::text, $4::bigint FROM e, unnest($5::integer[]) h`
	floorPublishMany = `WITH i AS (
			SELECT * FROM unnest($1::text[], $3::text[], $6::text[], $7::smallint[]) AS i(id, key, payload, lane)),
		e AS (
			INSERT INTO relaybus_events (id, type, source, key, created, handlers, payload)
			SELECT id, $2::text, 'bench', key, $4::bigint, $5::integer[], payload FROM i RETURNING seq, id)
		INSERT INTO relaybus_deliveries (event, handler, lane, due, key, updated)
		SELECT e.seq, h, i.lane, $4::bigint, i.key, $4::bigint FROM e JOIN i ON i.id = e.id, unnest($5::integer[]) h`
)

// floor is the same work made by hand on PostgreSQL.
type floor struct {
	setting

	pool *pgxpool.Pool
	// pipelined sends a whole transaction in one round trip.
	pipelined bool
	refs      []int32
	// published wakes the handling of the same process up.
	published chan struct{}
}

func openFloor(ctx context.Context, e setting) (queue, error) { return newFloor(ctx, e, false) }

func openPipelinedFloor(ctx context.Context, e setting) (queue, error) { return newFloor(ctx, e, true) }

// newFloor lets the store itself make its tables and indexes.
func newFloor(ctx context.Context, e setting, pipelined bool) (*floor, error) {
	pool, s, err := openPoolAndStore(ctx, e.address)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.Setup(ctx), s.Close()); err != nil {
		pool.Close()
		return nil, fmt.Errorf("make tables: %w", err)
	}
	f := &floor{setting: e, pool: pool, pipelined: pipelined, published: make(chan struct{}, 1)}
	for i := range e.handlers {
		f.refs = append(f.refs, int32(i+1))
	}
	return f, nil
}

func (f *floor) publish(ctx context.Context, first int64, n int) error {
	text, args, err := f.statement(first, n)
	if err != nil {
		return err
	}
	if f.pipelined {
		err = f.inOneTrip(ctx, newOrder(first), text, args)
	} else {
		err = withOrder(ctx, f.pool, newOrder(first), func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, text, args...)
			return err
		})
	}
	if err == nil {
		select {
		case f.published <- struct{}{}:
		default:
		}
	}
	return err
}

func (f *floor) statement(first int64, n int) (text string, args []any, err error) {
	now := time.Now().UnixMilli()
	rows, err := newRows(first, n, now, f.keyed)
	if err != nil {
		return "", nil, err
	}
	if n == 1 {
		r := rows[0]
		return floorPublish, []any{r.id, eventName, r.key, now, f.refs, string(r.payload), int16(r.lane)}, nil
	}
	ids, keys, payloads, lanes := make([]string, n), make([]*string, n), make([]string, n), make([]int16, n)
	for i, r := range rows {
		ids[i], keys[i], payloads[i], lanes[i] = r.id, r.key, string(r.payload), int16(r.lane)
	}
	return floorPublishMany, []any{ids, eventName, keys, now, f.refs, payloads, lanes}, nil
}

func (f *floor) inOneTrip(ctx context.Context, ord order, text string, args []any) error {
	batch := new(pgx.Batch)
	batch.Queue("begin")
	batch.Queue(insertPostgresOrder, ord.Number, ord.Customer, ord.Cents)
	batch.Queue(text, args...)
	batch.Queue("commit")
	return f.pool.SendBatch(ctx, batch).Close()
}

func (f *floor) load(ctx context.Context, n int) error {
	return inBatches(n, func(first int64, n int) error { return f.publish(ctx, first, n) })
}

func (f *floor) count(ctx context.Context) (tally, error) {
	return countPool(ctx, f.pool, "SELECT count(*) FROM relaybus_deliveries")
}

func (f *floor) close() error {
	f.pool.Close()
	return nil
}
