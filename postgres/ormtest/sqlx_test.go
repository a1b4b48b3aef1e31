package ormtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// openSqlx uses sqlx: a *sqlx.Tx needs no adapter.
func openSqlx(driver string) func(t *testing.T, url string) *handle {
	return func(t *testing.T, url string) *handle {
		t.Helper()
		db := sqlx.NewDb(openDB(t, driver, url), driver)
		return &handle{
			begin: func(ctx context.Context) (*transaction, error) {
				tx, err := db.BeginTxx(ctx, nil)
				if err != nil {
					return nil, err
				}
				return sqlxTransaction(tx), nil
			},
			within: func(tx postgres.SQLTx) func(ctx context.Context, id string) error {
				// No *sqlx.Tx can be made of a *sql.Tx, but sqlx binds names for any.
				return func(ctx context.Context, id string) error {
					query, args, err := sqlx.BindNamed(sqlx.DOLLAR, "INSERT INTO orders (id) VALUES (:id)", map[string]any{"id": id})
					if err != nil {
						return err
					}
					_, err = tx.ExecContext(ctx, query, args...)
					return err
				}
			},
		}
	}
}

func sqlxTransaction(tx *sqlx.Tx) *transaction {
	return &transaction{
		join:   func() store.Tx { return postgres.JoinSQL(tx) },
		insert: insertSqlx(tx),
		commit: tx.Commit, rollback: tx.Rollback,
		nested: func(ctx context.Context, fn func(inner *transaction) error) error {
			if _, err := tx.ExecContext(ctx, "SAVEPOINT inner_work"); err != nil {
				return err
			}
			if err := fn(sqlxTransaction(tx)); err != nil {
				_, undo := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT inner_work")
				return errors.Join(err, undo)
			}
			return nil
		},
	}
}

func insertSqlx(tx *sqlx.Tx) func(ctx context.Context, id string) error {
	return func(ctx context.Context, id string) error {
		_, err := sqlx.NamedExecContext(ctx, tx, "INSERT INTO orders (id) VALUES (:id)", map[string]any{"id": id})
		return err
	}
}
