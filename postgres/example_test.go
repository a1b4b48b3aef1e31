package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/postgres"
)

// order is the payload of the examples.
type order struct {
	ID string `json:"id"`
}

// A row and an event are committed together, and the event is handled. The ledger
// is written in the transaction that completes the delivery.
func Example() {
	ctx := context.Background()
	url, drop, err := exampleDatabase(ctx)
	if err == nil {
		err = errors.Join(example(ctx, url), drop())
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// handled: 1
	// ledger: o-1
}

func example(ctx context.Context, url string) (err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `CREATE TABLE orders (id text); CREATE TABLE ledger (id text)`); err != nil {
		return err
	}
	s, err := postgres.New(pool, postgres.Config{}) //nolint:contextcheck // New connects to nothing.
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Setup(ctx); err != nil { // Start does it, too.
		return err
	}
	bus, err := relaybus.New(s, relaybus.Config{Source: "shop", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	placed := relaybus.Define[order]("order.placed.v1")
	err = bus.Subscribe(placed.Handle("ledger", func(ctx context.Context, e *relaybus.Event[order]) error {
		_, err := postgres.Tx(ctx).Exec(ctx, `INSERT INTO ledger VALUES ($1)`, e.Payload.ID)
		return err
	}, relaybus.Transactional()))
	if err != nil {
		return err
	}

	err = bus.Transaction(ctx, func(ctx context.Context) error {
		if _, err := postgres.Tx(ctx).Exec(ctx, `INSERT INTO orders VALUES ($1)`, "o-1"); err != nil {
			return err
		}
		return bus.Publish(ctx, placed.New(order{ID: "o-1"}, relaybus.Key("o-1")))
	})
	if err != nil {
		return err
	}

	// A service calls Run instead.
	n, err := bus.Drain(ctx)
	if err != nil {
		return err
	}
	fmt.Println("handled:", n)
	var id string
	if err := pool.QueryRow(ctx, `SELECT id FROM ledger`).Scan(&id); err != nil {
		return err
	}
	fmt.Println("ledger:", id)
	return nil
}
