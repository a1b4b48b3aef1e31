package main

import (
	"context"
	"database/sql"
	"fmt"
)

// order is the payload of every event.
type order struct {
	Number   int64  `json:"number"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	Note     string `json:"note"`
}

func newOrder(number int64) order {
	return order{
		Number:   number,
		Customer: fmt.Sprintf("customer-%d", number%1000),
		Cents:    100 + number%10_000,
		Note:     "leave it at the door, ring twice",
	}
}

// orders is the caller's own table, which every transaction of the publish
// case writes one row of. The insert is prepared once for everybody.
type orders struct {
	insert *sql.Stmt
}

const (
	createOrders = `CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL)`
	insertOrder  = `INSERT INTO orders (number, customer, cents) VALUES (?1, ?2, ?3)`
)

func newOrders(ctx context.Context, db *sql.DB) (*orders, error) {
	if _, err := db.ExecContext(ctx, createOrders); err != nil {
		return nil, fmt.Errorf("create orders: %w", err)
	}
	insert, err := db.PrepareContext(ctx, insertOrder)
	if err != nil {
		return nil, fmt.Errorf("prepare order: %w", err)
	}
	return &orders{insert: insert}, nil
}

// add writes the row in the transaction.
func (o *orders) add(ctx context.Context, tx *sql.Tx, ord order) error {
	insert := tx.StmtContext(ctx, o.insert) //nolint:sqlclosecheck // The end of the transaction closes it.
	_, err := insert.ExecContext(ctx, ord.Number, ord.Customer, ord.Cents)
	return err
}

func (o *orders) close() error { return o.insert.Close() }
