package ormtest_test

import (
	"context"
	"testing"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// library is a way in which services write to PostgreSQL.
type library struct {
	name string
	// open opens the library's handle on a database.
	open func(t *testing.T, url string) *handle
}

// handle is a library's handle on a database.
type handle struct {
	begin func(ctx context.Context) (*transaction, error)
	// outside is what the adapter makes of the handle itself, outside of any transaction. It is nil for a library whose
	// types already tell the two apart.
	outside func() store.Tx
	// within returns how the library inserts a row in a transaction that the bus opened.
	within func(tx postgres.SQLTx) (insert func(ctx context.Context, id string) error)
}

// transaction is an open transaction of a library.
type transaction struct {
	// join makes it usable for the bus, as a service would.
	join func() store.Tx
	// insert writes a row of the service's own, by the library's means.
	insert           func(ctx context.Context, id string) error
	commit, rollback func() error
	// nested runs fn in a savepoint by the library's means, and goes back to it when fn fails.
	nested func(ctx context.Context, fn func(inner *transaction) error) error
}

func libraries() []library {
	return []library{
		{"database/sql with pgx", openStandard("pgx", "")},
		{"database/sql with pgx, exec", openStandard("pgx", "&default_query_exec_mode=exec")},
		{"database/sql with pgx, simple protocol", openStandard("pgx", "&default_query_exec_mode=simple_protocol")},
		{"database/sql with pgx, cache describe", openStandard("pgx", "&default_query_exec_mode=cache_describe")},
		{"database/sql with pgx, describe exec", openStandard("pgx", "&default_query_exec_mode=describe_exec")},
		{"database/sql with lib/pq", openStandard("postgres", "")},
		{"database/sql with lib/pq, binary parameters", openStandard("postgres", "&binary_parameters=yes")},
		{"sqlx with pgx", openSqlx("pgx")},
		{"sqlx with lib/pq", openSqlx("postgres")},
		{"bun", openBun},
		{"gorm", openGorm(false)},
		{"gorm with prepared statements", openGorm(true)},
		{"ent with pgx", openEnt("pgx")},
		{"ent with lib/pq", openEnt("postgres")},
	}
}

// each runs a test for each library.
func each(t *testing.T, test func(t *testing.T, l library)) {
	t.Helper()
	for _, l := range libraries() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

// open begins a transaction that ends with the test at the latest.
func (h *handle) open(t *testing.T) *transaction {
	t.Helper()
	tx, err := h.begin(t.Context())
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	t.Cleanup(func() { _ = tx.rollback() }) // Most are finished by then.
	return tx
}
