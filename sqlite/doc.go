// Package sqlite is the relaybus store on SQLite: one file, no server, no cgo.
//
//	s, err := sqlite.Open("shop.db")
//	bus, err := relaybus.New(s, relaybus.Config{Source: "orders"})
//
// Events are written in the transaction of the caller's own rows, which [Tx]
// gives typed access to:
//
//	err = bus.Transaction(ctx, func(ctx context.Context) error {
//		if _, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO orders …`); err != nil {
//			return err
//		}
//		return bus.Publish(ctx, OrderPlaced.New(order))
//	})
//
// [Join] takes a transaction that the caller opened, on [Store.DB] or on a
// handle of his own to the same file.
//
// # One writer
//
// SQLite has one writer at a time. The store has one connection that writes, so
// that the goroutines of a process queue for it in Go, and others that read.
// Every transaction that writes begins with the write lock, so none fails
// because somebody else wrote between its first read and its first write. Other
// processes are waited for, with the caller's context, up to
// [Config].BusyTimeout. While a transaction is open nobody else writes: keep
// them short. A transactional handler's transaction begins at its first use.
//
// # Durability
//
// A commit is on the disk when it returns ([Full]); [Normal] trades that for
// speed. The file must be on a local disk.
//
// # Tables
//
// All names begin with [Config].Prefix. The tables belong to the store; reading
// them is harmless, and what they hold may change with a version. PRAGMA
// user_version and everything else in the file are the caller's.
//
//	meta         version of the schema, random id of the database
//	events       the events; seq is their position in commit order
//	deliveries   unfinished and dead deliveries
//	handlers     the catalogue; numbers stand for ids elsewhere
//	owners       workers and until when their leases run
//	lanes        who holds a lane of a handler, and its epoch
//	claims       one row for each claim: what it took
//	completions  one row for each batch of completions, for retention
//	accounts     retention of events with several handlers
//	history      completed deliveries, with Config.History
//
// # Claims
//
// What a worker leases is a lane of a handler, while something runs in it. A
// claim writes no delivery: it inserts one row that lists what it took. A
// completion deletes the delivery, or moves it into the history. A claim reads
// as many rows as it takes, whatever waits behind them: it looks for lanes with
// due work by hopping over an index, remembers them, and is told of what this
// process commits. When nothing is due it takes no lock.
package sqlite
