package ormtest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// openStandard uses database/sql as it is: a *sql.Tx needs no adapter.
func openStandard(driver, options string) func(t *testing.T, url string) *handle {
	return func(t *testing.T, url string) *handle {
		t.Helper()
		db := openDB(t, driver, url+options)
		return &handle{
			begin: func(ctx context.Context) (*transaction, error) {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return nil, err
				}
				return standardTransaction(tx), nil
			},
			within: insertStandard,
		}
	}
}

func standardTransaction(tx *sql.Tx) *transaction {
	return &transaction{
		join:   func() store.Tx { return postgres.JoinSQL(tx) },
		insert: insertStandard(tx),
		commit: tx.Commit, rollback: tx.Rollback,
		nested: func(ctx context.Context, fn func(inner *transaction) error) error {
			if _, err := tx.ExecContext(ctx, "SAVEPOINT inner_work"); err != nil {
				return err
			}
			if err := fn(standardTransaction(tx)); err != nil {
				_, undo := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT inner_work")
				return errors.Join(err, undo)
			}
			_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT inner_work")
			return err
		},
	}
}

func insertStandard(tx postgres.SQLTx) func(ctx context.Context, id string) error {
	return func(ctx context.Context, id string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id)
		return err
	}
}
