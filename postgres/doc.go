// Package postgres is the relaybus store on PostgreSQL 14 and later, by pgx.
//
//	pool, err := pgxpool.New(ctx, url)
//	s, err := postgres.New(pool, postgres.Config{})
//	bus, err := relaybus.New(s, relaybus.Config{Source: "orders"})
//
// Events are written in the transaction of the caller's own rows, which [Tx]
// gives typed access to:
//
//	err = bus.Transaction(ctx, func(ctx context.Context) error {
//		if _, err := postgres.Tx(ctx).Exec(ctx, `INSERT INTO orders …`); err != nil {
//			return err
//		}
//		return bus.Publish(ctx, OrderPlaced.New(order))
//	})
//
// [Join] takes a pgx transaction that the caller opened, [JoinSQL] one of
// database/sql, and so those of GORM, ent, bun and sqlx. With [Config].SQL the bus
// opens its transactions there, too.
//
// # Connections
//
// Transactions of the caller and of transactional handlers are opened on the
// caller's pool. For what the store does by itself it makes up to
// [Config].Connections connections like those of the pool, and one that listens:
// so the bus goes on when transactions hold all connections of the pool. What it
// needs of a session (isolation, timeouts, plans) it sets whatever the defaults of
// the role and the database are; where a pooler is between, in each transaction of
// its own, so that nothing is kept in a session. Behind PgBouncer in transaction mode
// give the pool a DefaultQueryExecMode that prepares no statements by name, such as
// pgx.QueryExecModeExec, and use version 1.21 or later: earlier ones can end when a
// request to cancel, which pgx sends when a context ends, comes as the statement ends
// ("server in bad state"). Behind any pooler nothing listens for notifications, and
// deliveries are found by polling.
//
// A connection whose server takes no writes any more, as after a failover, is
// given up. Transactions of the store's own that the server refuses because of a
// concurrent one are run again; those of a caller fail with [store.ErrConflict].
// A commit that a constraint or a trigger of the caller's refuses is
// [store.ErrInvalidArgument]: nothing was committed, and for a transactional handler
// the attempt counts. Only what passes by itself is [store.ErrUnavailable], such as a
// full disk or too many connections.
//
// # Tables
//
// They are in [Config].Schema, with names that begin with [Config].Prefix. They
// belong to the store; reading them is harmless, and what they hold may change with
// a version.
//
//	meta         version of the schema, random id of the database
//	events       the events
//	deliveries   unfinished and dead deliveries
//	handlers     the catalogue; numbers stand for ids elsewhere
//	owners       workers and until when their leases run
//	lanes        who has a lane of a handler, and its epoch
//	claims       one row for each claim: what it took
//	completions  one row for each batch of completions, for retention
//	accounts     retention of events with several handlers
//	history      completed deliveries, with Config.History
//
// [Store.DDL] prints them for an administrator who does not let the service create
// them. Its role then needs this, with the names of [Config] in place of the defaults,
// and nothing else:
//
//	GRANT USAGE ON SCHEMA public TO app;
//	GRANT SELECT ON relaybus_meta TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON relaybus_events, relaybus_deliveries,
//		relaybus_handlers, relaybus_owners, relaybus_lanes, relaybus_claims,
//		relaybus_completions, relaybus_accounts, relaybus_history TO app;
//	GRANT SELECT ON SEQUENCE relaybus_events_seq_seq TO app;
//
// # Order
//
// The sequence of an event comes from one sequence for all keys. Who appends an
// event with a key holds an advisory lock on the key from before the sequence is
// taken until the transaction ends: so the sequences of a key are in the order of
// commits. Two publishers of one key wait for each other; publish late in a long
// transaction. A transaction that publishes several keys in several calls can meet
// another one in a deadlock, which PostgreSQL breaks; publish them in one call, or
// in the same order everywhere.
//
// # Claims
//
// What a worker leases is a lane of a handler. It keeps its lanes, so that a lane is
// written only when it changes hands: whoever has nothing to do takes those in which
// nothing of their owner runs. A claim holds a lock on the row of its owner, and
// whoever takes something from an owner waits for that. A claim writes no delivery:
// it inserts one row that lists what it took, and costs two round trips. A
// completion deletes the delivery, or moves it into the history, and is one round
// trip for any number of them. A claim reads as many rows as it takes, whatever
// waits behind them: it remembers from where on each lane is to be read, and is told
// of what this process commits.
//
// # Wake-ups
//
// Other processes are notified after the commit, at most every 5 ms, and some
// moments after a publish in a transaction that the caller commits; see
// [Config].NotifyInTransaction. Polling finds what notifications miss.
package postgres
