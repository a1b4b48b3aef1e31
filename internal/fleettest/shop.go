package fleettest

import (
	"context"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
)

// Shop is a database as a process of a fleet uses it. The tables of the user have the columns
//
//	orders (id, unique), effects (id, any number of times), counters (name, value), with the row ('n', 0).
type Shop struct {
	Store store.Store
	// Order adds the row of an order in the transaction of the context; with again it may be there already.
	Order func(ctx context.Context, id string, again bool) error
	// Effect adds a row to effects in the transaction of the context.
	Effect func(ctx context.Context, id string) error
	// Count reads the counter in the transaction of the context, and then writes it, one higher.
	Count func(ctx context.Context) error
	// Begin opens a transaction by the means of the driver.
	Begin func(ctx context.Context) (OwnTx, error)
	// Gone tells an error of the driver's that says that the database is gone, or the connection to it. It may be nil.
	Gone func(err error) bool
	// Close closes the store and what it is on.
	Close func() error
}

// OwnTx is a transaction that a user opened without the bus.
type OwnTx struct {
	Tx store.Tx
	// Order adds the row of an order.
	Order func(ctx context.Context, id string) error
	// Commit may fail with any error of the driver's: the outcome counts as unknown then.
	Commit, Rollback func(ctx context.Context) error
}

// OrderOf is the payload of all events.
type OrderOf struct {
	ID string
	// Work is how many milliseconds its plain handler takes.
	Work int
	// Doomed orders die at the handler of that name.
	Doomed bool
	// Result is what the steered handlers of a process that is held return.
	Result string
}

// The events: an order is placed by a publisher, which makes its handlers publish that it is booked, in the transaction
// of a transactional handler, and followed.
var (
	OrderPlaced   = relaybus.Define[OrderOf]("order.placed.v1")
	OrderBooked   = relaybus.Define[OrderOf]("order.booked.v1")
	OrderFollowed = relaybus.Define[OrderOf]("order.followed.v1")
)

// The handlers.
const (
	HandlerMail   = "mail"
	HandlerLedger = "ledger"
	HandlerFlaky  = "flaky"
	HandlerFollow = "follow"
	HandlerDoomed = "doomed"
	HandlerSink   = "sink"
)

// HandlersOf returns who gets events of a type, sorted.
func HandlersOf(eventType string) []string {
	if eventType == OrderPlaced.Name() {
		return []string{HandlerDoomed, HandlerFlaky, HandlerFollow, HandlerLedger, HandlerMail}
	}
	return []string{HandlerSink}
}

// followID is the id of the event, and of its row, that follows an order.
func followID(id string) string { return "f-" + id }
