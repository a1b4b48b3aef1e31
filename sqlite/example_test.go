package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// A row and an event are committed together, and the event is delivered. A bus
// does this for its users.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: order o-1 was handled
}

func example(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "relaybus")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := sqlite.Open(filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Setup(ctx); err != nil {
		return err
	}
	if _, err := s.DB().ExecContext(ctx, `CREATE TABLE orders (id TEXT PRIMARY KEY)`); err != nil {
		return err
	}

	now := time.Now().UTC().Truncate(time.Millisecond)
	err = s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if _, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, "o-1"); err != nil {
			return err
		}
		_, err := s.Append(ctx, tx, []store.NewEvent{{
			Event:    store.Event{ID: "e-1", Type: "order.placed.v1", Payload: []byte(`"o-1"`), CreatedAt: now},
			Handlers: []store.Handler{{ID: "ledger"}},
			DueAt:    now,
		}}, now)
		return err
	})
	if err != nil {
		return err
	}

	got, err := s.Claim(ctx, store.ClaimRequest{
		Owner: "worker-1", Limit: 10, Now: now, Lease: 30 * time.Second,
		Handlers: []store.HandlerLimit{{Handler: store.Handler{ID: "ledger"}, Limit: 10}},
	})
	if err != nil {
		return err
	}
	for _, c := range got.Deliveries {
		var id string
		if err := s.Reader().QueryRowContext(ctx, `SELECT id FROM orders`).Scan(&id); err != nil {
			return err
		}
		_, err := s.Settle(ctx, "worker-1", []store.Settlement{{Lease: c.Lease, Action: store.Complete}}, now)
		if err != nil {
			return err
		}
		fmt.Println("order", id, "was handled")
	}
	return nil
}
