package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/store"
)

const (
	beginWriting = "begin isolation level read committed read write"
	beginReading = "begin isolation level repeatable read read only"
	// settings are what the store's own transactions need, whatever the defaults of
	// a role or a database are; and their plans are made once, and do not depend on
	// statistics that were made when the tables were empty. They are made for good on
	// a connection that is the store's, and in each transaction where a pooler may be
	// between.
	settings = `SELECT set_config('enable_seqscan', 'off', $1), set_config('enable_hashjoin', 'off', $1),
		set_config('enable_mergejoin', 'off', $1), set_config('enable_bitmapscan', 'off', $1),
		set_config('jit', 'off', $1), set_config('plan_cache_mode', 'force_generic_plan', $1),
		set_config('statement_timeout', '60s', $1), set_config('lock_timeout', '5s', $1),
		set_config('idle_in_transaction_session_timeout', '10s', $1), set_config('synchronous_commit',
			CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
			ELSE current_setting('synchronous_commit') END, $1),
		CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
			THEN set_config('transaction_timeout', '0', $1) END`
	// unlimited ends the limit of a transaction's time, which servers have from
	// version 17 on.
	unlimited = `; SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL`
	// attempts is how often a transaction of the store's own is run at most.
	attempts = 8
)

// settled marks a connection on which the settings are made for good.
const settled = "relaybus settled"

func isSettled(conn *pgx.Conn) bool {
	_, ok := conn.PgConn().CustomData()[settled]
	return ok
}

// hasSession reports whether a connection leads to a session of its own: the server
// tells who serves it, and a pooler between tells another number. It asks in one round
// trip, as two may lead to different servers.
func hasSession(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, `SELECT pg_backend_pid()::bigint`, pgx.QueryExecModeExec).Scan(&pid)
	return err == nil && pid == conn.PgConn().PID(), err
}

// settle makes the settings on a new connection of the store's own, if that leads to
// a session of its own.
func settle(ctx context.Context, conn *pgx.Conn) error {
	if has, err := hasSession(ctx, conn); err != nil || !has {
		return err
	}
	if _, err := conn.Exec(ctx, settings, false); err != nil {
		return err
	}
	conn.PgConn().CustomData()[settled] = true
	return nil
}

// usable is nil while the store is open and the context has not ended.
func (s *Store) usable(ctx context.Context, op string) error {
	if s.closed.Load() {
		return store.NewError(op, store.ErrClosed, "", nil)
	}
	return ended(ctx, op)
}

// acquire takes a connection of the store's own.
func (s *Store) acquire(ctx context.Context, op string) (*pgxpool.Conn, error) {
	return s.acquireFrom(ctx, op, s.own)
}

func (s *Store) acquireFrom(ctx context.Context, op string, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	if err := s.usable(ctx, op); err != nil {
		return nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, translate(op, err)
	}
	return conn, nil
}

// release gives a connection back. One on which err says that the server takes no
// writes is closed, and so are the idle ones: they lead to the same server.
func (s *Store) release(ctx context.Context, conn *pgxpool.Conn, err error) {
	if err != nil && isBroken(err) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Conn().Close(ctx) // The connection is of no use any more.
		if takesNoWrites(err) {
			s.own.Reset()
		}
	}
	conn.Release()
}

// retry runs a transaction of the store's own again while it is refused because
// of a concurrent one or of a broken connection. Nothing has been committed then.
func (*Store) retry(ctx context.Context, op string, run func(ctx context.Context) error) error {
	for attempt := 1; ; attempt++ {
		err := run(ctx)
		if err == nil || attempt == attempts || ctx.Err() != nil || !isTransient(err) {
			return err
		}
		// Jitter, as two transactions that met would meet again.
		timer := time.NewTimer(time.Duration(rand.Int64N(int64(attempt) * int64(4*time.Millisecond)))) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ended(ctx, op), err)
		case <-timer.C:
		}
	}
}

// write runs fn in a write transaction of the store's own, again when it must.
func (s *Store) write(ctx context.Context, op string, fn func(ctx context.Context, x *session) error) error {
	return s.retry(ctx, op, func(ctx context.Context) error {
		conn, err := s.acquire(ctx, op)
		if err != nil {
			return err
		}
		var failed error
		defer func() { s.release(ctx, conn, failed) }()
		s.meter.begun()
		if failed = s.begin(ctx, conn, beginWriting); failed != nil {
			return translate(op, failed)
		}
		x := &session{querier: steps{native{conn}, op}, s: s, private: true}
		if failed = x.current(ctx); failed == nil {
			failed = fn(ctx, x)
		}
		if failed == nil {
			failed = ended(ctx, op)
		}
		if failed != nil {
			rollback(ctx, conn)
			return translate(op, failed)
		}
		within, cancel := lasting(ctx)
		defer cancel()
		if failed = commit(within, op, conn); failed != nil {
			return failed
		}
		for _, f := range x.committed {
			f()
		}
		return nil
	})
}

// steps runs the statements of a write transaction, each in a time of its own. It
// looks at the caller's context before each.
type steps struct {
	of querier
	op string
}

func (s steps) exec(ctx context.Context, text string, args ...any) (int64, error) {
	if err := ended(ctx, s.op); err != nil {
		return 0, err
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	return s.of.exec(ctx, text, args...)
}

func (s steps) rows(ctx context.Context, text string, scan scanRow, args ...any) error {
	if err := ended(ctx, s.op); err != nil {
		return err
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	return s.of.rows(ctx, text, scan, args...)
}

// begin begins a transaction in one round trip.
func (s *Store) begin(ctx context.Context, conn *pgxpool.Conn, text string) error {
	ctx, cancel := lasting(ctx)
	defer cancel()
	var b pgx.Batch
	b.Queue(text)
	if !isSettled(conn.Conn()) {
		b.Queue(settings, true)
	}
	return s.send(ctx, conn, &b)
}

// send runs a batch whose results nobody wants.
func (s *Store) send(ctx context.Context, conn *pgxpool.Conn, b *pgx.Batch) error {
	s.meter.trip()
	return conn.SendBatch(ctx, b).Close()
}

func commit(ctx context.Context, op string, conn *pgxpool.Conn) error {
	tag, err := conn.Exec(ctx, "commit")
	switch {
	case err == nil && tag.String() == "COMMIT":
		return nil
	case err == nil:
		return store.NewError(op, store.ErrConflict, "the server rolled the transaction back", nil)
	case isRefusal(err), pgconn.SafeToRetry(err):
		return translate(op, err)
	default:
		return uncertain(op, err)
	}
}

// rollback ends a transaction that failed. A connection on which that does not
// work is closed by the pool.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback") // See above.
}

// read runs fn on one snapshot of the database.
func (s *Store) read(ctx context.Context, op string, fn func(ctx context.Context, x *session) error) error {
	return s.retry(ctx, op, func(ctx context.Context) error {
		conn, err := s.acquire(ctx, op)
		if err != nil {
			return err
		}
		var failed error
		defer func() { s.release(ctx, conn, failed) }()
		if failed = s.begin(ctx, conn, beginReading); failed != nil {
			return translate(op, failed)
		}
		x := &session{querier: native{conn}, s: s, private: true}
		if failed = x.current(ctx); failed == nil {
			failed = fn(ctx, x)
		}
		rollback(ctx, conn)
		return translate(op, failed)
	})
}

// change is write, and report is read, for what can wait: listings, statistics,
// operators, purges. However many of them are slow, some connections are left for
// claims, settlements and renewals.
func (s *Store) change(ctx context.Context, op string, fn func(ctx context.Context, x *session) error) error {
	return s.aside(ctx, op, func() error { return s.write(ctx, op, fn) })
}

func (s *Store) report(ctx context.Context, op string, fn func(ctx context.Context, x *session) error) error {
	return s.aside(ctx, op, func() error { return s.read(ctx, op, fn) })
}

func (s *Store) aside(ctx context.Context, op string, run func() error) error {
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	select {
	case s.asides <- struct{}{}:
	case <-ctx.Done():
		return ended(ctx, op)
	}
	defer func() { <-s.asides }()
	return run()
}
