package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/relaybus-go/relaybus/store"
)

// channel is where the processes that share the tables notify each other.
func (s *Store) channel() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.key)) // It returns no error.
	return fmt.Sprintf("relaybus_%016x", h.Sum64())
}

// listening names the step.
const listening = "listen for notifications"

// probeTime is how long the probe of a notification may take.
const probeTime = 2 * time.Second

// Wake calls signal when another process has published; see [store.Waker]. It
// listens on a connection of its own beside the pool, and returns an error when
// that breaks, to be called again. Notifications of this instance are left out.
//
// Right after its start it notifies itself: when that does not arrive, a pooler
// keeps the session from the connection, which is logged once. Deliveries are then
// found by polling alone.
func (s *Store) Wake(ctx context.Context, signal func()) error {
	if s.closed.Load() {
		return store.NewError(listening, store.ErrClosed, "", nil)
	}
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return stopped(ctx, err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_ = conn.Close(closing) // It has no transaction that could be lost.
	}()
	if _, err := conn.Exec(ctx, "listen "+quote(s.channel())); err != nil {
		return stopped(ctx, err)
	}
	signal() // for what was missed before
	if err := s.probe(ctx, conn, signal); err != nil {
		return stopped(ctx, err)
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return stopped(ctx, err)
		}
		if n.Payload != s.instance {
			signal()
		}
	}
}

// probe notifies the connection that listens, over another one.
func (s *Store) probe(ctx context.Context, conn *pgx.Conn, signal func()) error {
	if _, err := s.own.Exec(ctx, `SELECT pg_notify($1, $2)`, s.channel(), s.instance); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(within)
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded):
			if !s.warned.Swap(true) {
				s.cfg.Logger.WarnContext(ctx, "relaybus: the database's notifications don't arrive, so deliveries "+
					"are found by polling; is there a pooler in transaction mode between?")
			}
			return nil
		case err != nil:
			return err
		case n.Payload == s.instance:
			return nil
		default:
			signal()
		}
	}
}

// stopped is nil when the context has ended: that is how listening ends.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // See above.
	}
	return translate(listening, err)
}
