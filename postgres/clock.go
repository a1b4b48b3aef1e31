package postgres

import (
	"context"
	"time"
)

// ServerTime returns the time of the server; see [store.Timekeeper].
func (s *Store) ServerTime(ctx context.Context) (now time.Time, err error) {
	const op = "ask for the server's time"
	conn, err := s.acquire(ctx, op)
	if err != nil {
		return now, err
	}
	err = conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	s.release(ctx, conn, err)
	return now.UTC(), translate(op, err)
}
