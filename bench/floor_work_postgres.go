package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What the floor handles with: batches of the ready deliveries in the order of the
// index, and one statement for what is done with a batch. There is one who handles,
// so nothing is claimed, and nothing fenced.
const (
	floorBatch = 100
	floorRead  = `SELECT d.lane, d.due, d.event, e.payload FROM relaybus_deliveries d JOIN relaybus_events e ON e.seq = d.event
		WHERE d.handler = 1 AND d.state = 0 AND (d.lane, d.due, d.event) > ($1::smallint, $2::bigint, $3::bigint)
		ORDER BY d.lane, d.due, d.event LIMIT $4`
	floorComplete = `WITH d AS (
			DELETE FROM relaybus_deliveries WHERE handler = 1 AND event = ANY($1::bigint[]) RETURNING event)
		INSERT INTO relaybus_completions (at, events) SELECT extract(epoch FROM now()) * 1000, array_agg(event) FROM d`
	floorPlans = `SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off`
)

// floorPlace is from where on the floor reads.
type floorPlace struct {
	lane       int16
	due, event int64
}

func beforeAll() floorPlace { return floorPlace{lane: math.MinInt16} }

func (f *floor) work(ctx context.Context, handled func(order), done func()) (stop func() error, err error) {
	conn, err := f.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, floorPlans); err != nil {
		conn.Release()
		return nil, err
	}
	stopped := make(chan struct{})
	var failed error
	var group sync.WaitGroup
	group.Go(func() {
		defer conn.Release()
		from := beforeAll()
		for failed == nil {
			var n int
			if n, failed = handleBatch(ctx, conn, &from, handled, done); n > 0 {
				select {
				case <-stopped:
					return
				default:
					continue
				}
			}
			from = beforeAll()
			select {
			case <-stopped:
				return
			case <-f.published:
			}
		}
	})
	return func() error {
		close(stopped)
		group.Wait()
		return failed
	}, nil
}

// handleBatch handles what is ready from the place on, and returns how many.
func handleBatch(ctx context.Context, conn *pgxpool.Conn, from *floorPlace, handled func(order), done func()) (n int, err error) {
	rows, err := conn.Query(ctx, floorRead, from.lane, from.due, from.event, floorBatch)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	events := make([]int64, 0, floorBatch)
	for rows.Next() {
		var payload []byte
		if err := rows.Scan(&from.lane, &from.due, &from.event, &payload); err != nil {
			return 0, err
		}
		if err := handleBody(payload, handled); err != nil {
			return 0, err
		}
		events = append(events, from.event)
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	if len(events) == 0 {
		return 0, nil
	}
	tag, err := conn.Exec(ctx, floorComplete, events)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("nothing was deleted")
	}
	if err != nil {
		return 0, fmt.Errorf("complete: %w", err)
	}
	for range events {
		done()
	}
	return len(events), nil
}
