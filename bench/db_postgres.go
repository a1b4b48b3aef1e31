package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolSize is how many connections everybody's pool has.
const poolSize = 16

// The caller's own table on PostgreSQL.
const (
	createPostgresOrders = `CREATE TABLE IF NOT EXISTS orders (number bigint PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL)`
	insertPostgresOrder  = `INSERT INTO orders (number, customer, cents) VALUES ($1, $2, $3)`
)

// openPool opens a pool on a database with the table of the caller.
func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	if _, err := pool.Exec(ctx, createPostgresOrders); err != nil {
		pool.Close()
		return nil, fmt.Errorf("create orders: %w", err)
	}
	return pool, nil
}

func addOrder(ctx context.Context, tx pgx.Tx, ord order) error {
	_, err := tx.Exec(ctx, insertPostgresOrder, ord.Number, ord.Customer, ord.Cents)
	return err
}

// withOrder commits an order and what write does.
func withOrder(ctx context.Context, pool *pgxpool.Pool, ord order, write func(tx pgx.Tx) error) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := addOrder(ctx, tx, ord); err != nil {
		return errors.Join(fmt.Errorf("insert order: %w", err), tx.Rollback(ctx))
	}
	if err := write(tx); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

// countPool is the tally of a database, whose waiting deliveries are the sum of
// what the queries count.
func countPool(ctx context.Context, pool *pgxpool.Pool, waiting ...string) (t tally, err error) {
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&t.orders); err != nil {
		return t, fmt.Errorf("count orders: %w", err)
	}
	for _, query := range waiting {
		var n int64
		if err := pool.QueryRow(ctx, query).Scan(&n); err != nil {
			return t, fmt.Errorf("count waiting: %w", err)
		}
		t.waiting += n
	}
	return t, nil
}
