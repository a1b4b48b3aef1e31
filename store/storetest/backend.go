package storetest

import (
	"context"
	"os/exec"
	"testing"

	"github.com/relaybus-go/relaybus/store"
)

// Backend is a store as the suite sees it.
type Backend struct {
	// Name is the name of the backend in logs; it need not be the store's Kind.
	Name string

	// New makes an isolated, empty database that is not set up, and removes it
	// when the test ends.
	New func(t testing.TB) Database

	// Backlog is how many deliveries the cases about backlogs make. 0 stands
	// for 10,000.
	Backlog int

	// CrashPoints names the places inside the store at which a worker process
	// can be killed; see [Worker]. The cases also kill between the calls of the
	// contract, which needs no help from the store.
	CrashPoints CrashPoints
}

// CrashPoints are the crash points that each kind of work passes at least once.
// A point that is listed and never passed fails its case.
type CrashPoints struct {
	// Setup of an empty database.
	Setup []string
	// Publish: a transaction with an append.
	Publish []string
	// Work: a claim, settlements and completions inside transactions, of a
	// worker that has the database for itself.
	Work []string
	// Takeover: a claim that takes over from a dead worker, beyond those of Work.
	Takeover []string
}

// Options are the ways in which the suite opens a store.
type Options struct {
	// History keeps completed deliveries. A store that can't keep them opens
	// without, and declares so.
	History bool
}

// Database is one database of a backend. Functions that are nil are abilities
// that the backend doesn't have; the cases that need them are reported by the
// case "Features".
type Database struct {
	// Open returns another store instance on the database, as another process
	// would have one, and closes it when the test ends. It doesn't call Setup.
	Open func(t testing.TB, o Options) store.Store

	// Begin opens a transaction on the store's database by the means of the
	// driver, as a caller would who does not use Transact.
	Begin func(t testing.TB, s store.Store) CallerTx

	// Effect writes a row of the caller's own, named id, in the transaction.
	// Two rows may have the same name.
	Effect func(ctx context.Context, tx store.Tx, id string) error

	// Effects returns the names of the committed rows in the order in which
	// they were written.
	Effects func(t testing.TB, s store.Store) []string

	// Command returns a command that starts a worker process on this database:
	// the test binary again, whose TestMain calls [WorkerMain]. It is nil for
	// databases that no other process can open.
	Command func(t testing.TB) *exec.Cmd

	// Counters count what the database did, over all instances.
	Counters Counters
}

// CallerTx is a transaction that a caller opened.
type CallerTx struct {
	Tx       store.Tx
	Commit   func() error
	Rollback func() error
}

// Counters count what a database did since it was made. They only grow. Each
// may be nil.
type Counters struct {
	// RowsRead counts the rows (or records, or documents) that were examined,
	// whether or not they matched.
	RowsRead func() int64
	// Transactions counts the write transactions that were begun.
	Transactions func() int64
	// Commands counts the round trips to the database.
	Commands func() int64
}
