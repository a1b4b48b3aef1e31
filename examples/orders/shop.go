package main

import (
	"context"
	"errors"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/sqlite"
)

// Order, Payment and Parcel are the payloads of the shop's events.
type Order struct {
	ID      string `json:"id"`
	Email   string `json:"email"`
	Address string `json:"address"`
	Cents   int64  `json:"cents"`
}

type Payment struct {
	OrderID string `json:"orderId"`
	Cents   int64  `json:"cents"`
}

type Parcel struct {
	OrderID string `json:"orderId"`
}

// The event types. The name is the contract with other services.
var (
	OrderPlaced  = relaybus.Define[Order]("order.placed.v1")
	OrderPaid    = relaybus.Define[Payment]("order.paid.v1")
	OrderShipped = relaybus.Define[Parcel]("order.shipped.v1")
)

type shop struct {
	db  *sqlite.Store
	bus *relaybus.Bus
	// crashAt is the order in whose ledger entry the process kills itself.
	crashAt string
}

const schema = `
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, email TEXT, address TEXT, cents INTEGER, state TEXT);
CREATE TABLE IF NOT EXISTS ledger (order_id TEXT, cents INTEGER);
CREATE TABLE IF NOT EXISTS mails (event_id TEXT PRIMARY KEY, order_id TEXT, subject TEXT);
CREATE TABLE IF NOT EXISTS timeline (order_id TEXT, step TEXT);`

func (s *shop) createTables(ctx context.Context) error {
	_, err := s.db.DB().ExecContext(ctx, schema)
	return err
}

var errCardDeclined = errors.New("card declined")

// place stores an order and publishes its event in one transaction: both are
// there afterwards, or neither.
func (s *shop) place(ctx context.Context, o Order) error {
	return s.bus.Transaction(ctx, func(ctx context.Context) error {
		if _, err := sqlite.Tx(ctx).ExecContext(ctx,
			`INSERT INTO orders (id, email, address, cents, state) VALUES (?, ?, ?, ?, 'placed')`,
			o.ID, o.Email, o.Address, o.Cents); err != nil {
			return err
		}
		// The key keeps the events of one order in order.
		if err := s.bus.Publish(ctx, OrderPlaced.New(o, relaybus.Key(o.ID))); err != nil {
			return err
		}
		if o.Cents > 1_000_000 {
			return errCardDeclined // rolls the order and its event back
		}
		return nil
	})
}

func (*shop) setState(ctx context.Context, orderID, state string) error {
	_, err := sqlite.Tx(ctx).ExecContext(ctx, `UPDATE orders SET state = ? WHERE id = ?`, state, orderID)
	return err
}
