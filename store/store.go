// Package store is the contract between the bus and a database.
//
// A store keeps four things: events, the deliveries that bring an event to a
// handler, the lanes by which workers lease deliveries, and the catalogue of
// handlers. The bus does everything that is the same on every database
// (defaults, validation of what users pass, retries, batching, hooks); a store
// does what must happen inside the database, and nothing else.
//
// The contract is a set of small interfaces by job. A store implements all of
// [Store]; abilities that only some databases have ([Waker]) are further
// one-method interfaces that the bus finds by type assertion. What a store
// can't do is declared in its [Features], and package storetest checks both.
//
// Rules that hold for every method:
//
//   - Time comes in as an argument. A store never reads a clock of its own,
//     except for connection deadlines. Times are kept to the millisecond, in UTC.
//   - Every error is a [*Error] that carries one of the classes of this package,
//     so that errors.Is tells what kind it is and errors.As still reaches the
//     driver's error.
//   - An error without [ErrOutcomeUnknown] means that nothing was changed.
//   - No text that a caller passes can become SQL, an operator or a pattern.
//   - All methods may be called by many goroutines at once.
package store

import (
	"context"
	"time"
)

// Store is what the bus asks of a database.
type Store interface {
	Setuper
	Transactor
	Appender
	Claimer
	Settler
	Catalog
	Lister
	Operator
	Purger

	// Kind is a short lower-case name of the database, such as "sqlite". It
	// appears in errors and logs.
	Kind() string

	// Features declares what this store does not do, or does in its own way.
	Features() Features
}

// Setuper prepares a database.
type Setuper interface {
	// Setup creates or upgrades what the store needs. It is idempotent, and
	// many processes may call it at once on an empty database. A database that
	// a newer version of the library has set up is refused with
	// [ErrSchemaTooNew] before anything is touched.
	Setup(ctx context.Context) error
}

// Waker is an optional ability: it signals that another process may have made
// a delivery due. Signals may be lost, doubled or early; polling is the truth.
type Waker interface {
	// Wake calls signal after each change that another process may have
	// committed, until the context ends, and then returns nil. It returns an
	// error only if it can't signal at all; it is then called again later.
	Wake(ctx context.Context, signal func()) error
}

// Timekeeper is an optional ability: a server with a clock of its own, which all
// processes can compare theirs with. Nothing in a store depends on that clock.
type Timekeeper interface {
	// ServerTime returns the time of the server.
	ServerTime(ctx context.Context) (time.Time, error)
}

// Features declares the differences between stores. The zero value is a store
// that does everything.
type Features struct {
	// Volatile: nothing survives the process (the memory store).
	Volatile bool
	// SerialTransactions: one write transaction at a time in the whole
	// database. Transactional handlers then run one at a time, and their
	// transaction opens at its first use.
	SerialTransactions bool
	// PayloadByValue: payloads come back equal by value (numbers as decimals,
	// strings as code points, members in order), but not byte for byte.
	PayloadByValue bool
	// SingleProcess: no other process can open the same database.
	SingleProcess bool
	// NoHistory: completed deliveries can't be listed, as the store was opened
	// without completion history.
	NoHistory bool
	// MaxPayloadBytes is the largest payload that the store takes; 0 stands
	// for no limit of its own.
	MaxPayloadBytes int
	// TransactionBudget is the default time budget of a transactional handler
	// where it must be shorter than the bus's; 0 otherwise.
	TransactionBudget time.Duration
}
