package ormtest_test

import (
	"context"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// openEnt uses the layer of ent on which its generated code works. A transaction of that layer is an [entsql.Tx], which
// needs no adapter. Nor does the generated *ent.Tx when the code is generated with the feature sql/execquery.
func openEnt(driver string) func(t *testing.T, url string) *handle {
	return func(t *testing.T, url string) *handle {
		t.Helper()
		drv := entsql.OpenDB(dialect.Postgres, openDB(t, driver, url))
		return &handle{
			begin: func(ctx context.Context) (*transaction, error) {
				tx, err := drv.Tx(ctx)
				if err != nil {
					return nil, err
				}
				return entTransaction(tx), nil
			},
			within: func(tx postgres.SQLTx) func(ctx context.Context, id string) error {
				return insertEnt(entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx}))
			},
		}
	}
}

func entTransaction(tx dialect.Tx) *transaction {
	return &transaction{
		join: func() store.Tx {
			joined, ok := tx.(postgres.SQLTx)
			if !ok {
				return nil
			}
			return postgres.JoinSQL(joined)
		},
		insert: insertEnt(tx),
		commit: tx.Commit, rollback: tx.Rollback,
	}
}

func insertEnt(on dialect.ExecQuerier) func(ctx context.Context, id string) error {
	return func(ctx context.Context, id string) error {
		query, args := entsql.Dialect(dialect.Postgres).Insert("orders").Columns("id").Values(id).Query()
		return on.Exec(ctx, query, args, nil)
	}
}
