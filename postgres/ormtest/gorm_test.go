package ormtest_test

import (
	"context"
	"testing"

	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

type gormOrder struct{ ID string }

func (gormOrder) TableName() string { return "orders" }

// gormTx is the adapter for GORM: nil outside of a transaction, where the pool is a *sql.DB.
func gormTx(db *gorm.DB) store.Tx {
	tx, ok := db.Statement.ConnPool.(postgres.SQLTx)
	if !ok {
		return nil
	}
	return postgres.JoinSQL(tx)
}

func openGorm(prepare bool) func(t *testing.T, url string) *handle {
	return func(t *testing.T, url string) *handle {
		t.Helper()
		db, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: openDB(t, "pgx", url)}),
			&gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return &handle{
			outside: func() store.Tx { return gormTx(db) },
			begin: func(ctx context.Context) (*transaction, error) {
				tx := db.WithContext(ctx).Begin()
				return gormTransaction(tx), tx.Error
			},
			within: func(tx postgres.SQLTx) func(ctx context.Context, id string) error {
				pool, ok := tx.(gorm.ConnPool)
				if !ok {
					return nil
				}
				inside := db.Session(&gorm.Session{NewDB: true, SkipDefaultTransaction: true})
				inside.Statement.ConnPool = pool
				return gormTransaction(inside).insert
			},
		}
	}
}

func gormTransaction(tx *gorm.DB) *transaction {
	return &transaction{
		join: func() store.Tx { return gormTx(tx) },
		insert: func(ctx context.Context, id string) error {
			return tx.WithContext(ctx).Create(&gormOrder{ID: id}).Error
		},
		commit:   func() error { return tx.Commit().Error },
		rollback: func() error { return tx.Rollback().Error },
		nested: func(ctx context.Context, fn func(inner *transaction) error) error {
			return tx.WithContext(ctx).Transaction(func(inner *gorm.DB) error { return fn(gormTransaction(inner)) })
		},
	}
}
