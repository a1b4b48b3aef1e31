package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/sqlite"
)

func Example() {
	dir, err := os.MkdirTemp("", "shop-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := shop(context.Background(), filepath.Join(dir, "shop.db")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// order o-1 is in the ledger
	// handled 1
}

func shop(ctx context.Context, file string) error {
	db, err := sqlite.Open(file)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.DB().ExecContext(ctx, `CREATE TABLE orders (id TEXT); CREATE TABLE ledger (order_id TEXT)`); err != nil {
		return err
	}
	bus, err := relaybus.New(db, relaybus.Config{Source: "shop"})
	if err != nil {
		return err
	}
	orderPlaced := relaybus.Define[string]("order.placed.v1")
	if err := bus.Subscribe(
		orderPlaced.Handle("ledger", func(ctx context.Context, e *relaybus.Event[string]) error {
			fmt.Println("order", e.Payload, "is in the ledger")
			_, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO ledger VALUES (?)`, e.Payload)
			return err
		}, relaybus.Transactional()),
	); err != nil {
		return err
	}
	// Setup runs when the bus starts; a script that only drains sets up first.
	if err := db.Setup(ctx); err != nil {
		return err
	}
	if err := bus.Transaction(ctx, func(ctx context.Context) error {
		if _, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO orders VALUES ('o-1')`); err != nil {
			return err
		}
		return bus.Publish(ctx, orderPlaced.New("o-1", relaybus.Key("o-1")))
	}); err != nil {
		return err
	}
	n, err := bus.Drain(ctx)
	fmt.Println("handled", n)
	return err
}
