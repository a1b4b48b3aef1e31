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
// Behind a pooler it does not listen: a pooler in transaction mode would hand the
// notifications to whoever gets the server's connection next. Right after its start
// it notifies itself: when that does not arrive, something else is between. Both are
// logged once. Deliveries are then found by polling alone.
func (s *Store) Wake(ctx context.Context, signal func()) error {
	if s.closed.Load() {
		return store.NewError(listening, store.ErrClosed, "", nil)
	}
	conn, err := s.listen(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	if conn == nil {
		s.warn(ctx)
		<-ctx.Done()
		return nil
	}
	defer hangUp(ctx, conn)
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

// listen returns a connection that listens, or nil where a pooler is between.
func (s *Store) listen(ctx context.Context) (*pgx.Conn, error) {
	c := s.pool.Config()
	c.ConnConfig.OnNotification = nil // Nobody can wait for what it gets.
	if c.BeforeConnect != nil {
		if err := c.BeforeConnect(ctx, c.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, c.ConnConfig)
	if err != nil {
		return nil, err
	}
	has, err := hasSession(ctx, conn)
	if err == nil && has {
		if _, err = conn.Exec(ctx, "set idle_session_timeout = 0"); err == nil {
			_, err = conn.Exec(ctx, "listen "+quote(s.channel()))
		}
		if err == nil {
			return conn, nil
		}
	}
	hangUp(ctx, conn)
	return nil, err
}

// hangUp closes a connection that has no transaction which could be lost.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	_ = conn.Close(ctx) // See above.
}

// warn says once that notifications don't arrive.
func (s *Store) warn(ctx context.Context) {
	if !s.warned.Swap(true) {
		s.cfg.Logger.WarnContext(ctx, "relaybus: the database's notifications don't arrive, so deliveries "+
			"are found by polling; is there a pooler in transaction mode between?")
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
			s.warn(ctx)
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
