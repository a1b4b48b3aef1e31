package ormtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	ID string `bun:"id,pk"`
}

// openBun uses bun. A bun.Tx formats its queries itself, so it is the *sql.Tx in it that joins; a nested bun.Tx, which
// is a savepoint, has the same one.
func openBun(t *testing.T, url string) *handle {
	t.Helper()
	db := bun.NewDB(openDB(t, "pgx", url), pgdialect.New())
	return &handle{
		begin: func(ctx context.Context) (*transaction, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, err
			}
			return bunTransaction(tx), nil
		},
		within: func(tx postgres.SQLTx) func(ctx context.Context, id string) error {
			conn, ok := tx.(bun.IConn)
			if !ok {
				return nil
			}
			return func(ctx context.Context, id string) error {
				_, err := db.NewInsert().Conn(conn).Model(&bunOrder{ID: id}).Exec(ctx)
				return err
			}
		},
	}
}

func bunTransaction(tx bun.Tx) *transaction {
	return &transaction{
		join: func() store.Tx { return postgres.JoinSQL(tx.Tx) },
		insert: func(ctx context.Context, id string) error {
			_, err := tx.NewInsert().Model(&bunOrder{ID: id}).Exec(ctx)
			return err
		},
		commit: tx.Commit, rollback: tx.Rollback,
		nested: func(ctx context.Context, fn func(inner *transaction) error) error {
			return tx.RunInTx(ctx, nil, func(_ context.Context, inner bun.Tx) error { return fn(bunTransaction(inner)) })
		},
	}
}

// A bun.Tx has the methods of a transaction of database/sql, so it compiles as one: then it must work as one, too, as
// must one that is a savepoint.
func TestBunTxItself(t *testing.T) {
	t.Parallel()
	b := newBed(t, postgres.Config{}, nil)
	db := bun.NewDB(openDB(t, "pgx", b.url), pgdialect.New())
	err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		joined := postgres.JoinSQL(tx)
		return errors.Join(
			b.PublishTx(ctx, joined, order("what?")),
			b.PublishTx(ctx, joined, order("a", relaybus.Key("k")), order("b")),
			tx.RunInTx(ctx, nil, func(ctx context.Context, inner bun.Tx) error {
				return b.PublishTx(ctx, postgres.JoinSQL(inner), order("c"))
			}),
		)
	})
	if err != nil {
		t.Errorf("publish: %v", err)
	}
	b.wantHandled("what?", "a", "b", "c")
}
