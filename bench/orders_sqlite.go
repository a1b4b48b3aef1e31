package main

import (
	"context"
	"database/sql"
	"fmt"
)

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
