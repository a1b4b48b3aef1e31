package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// refusal is a transaction that could not begin: everything on it fails with the
// error that says why.
type refusal struct{ err error }

func (r refusal) Begin(context.Context) (pgx.Tx, error) { return nil, r.err }
func (r refusal) Commit(context.Context) error          { return r.err }
func (refusal) Rollback(context.Context) error          { return nil }
func (refusal) LargeObjects() pgx.LargeObjects          { return pgx.LargeObjects{} }
func (refusal) Conn() *pgx.Conn                         { return nil }

func (r refusal) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, r.err
}

func (r refusal) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return refusedBatch(r) }

func (r refusal) Prepare(context.Context, string, string) (*pgconn.StatementDescription, error) {
	return nil, r.err
}

func (r refusal) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, r.err
}

func (r refusal) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, r.err }
func (r refusal) QueryRow(context.Context, string, ...any) pgx.Row        { return refusedRow(r) }

type refusedRow struct{ err error }

func (r refusedRow) Scan(...any) error { return r.err }

type refusedBatch struct{ err error }

func (r refusedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r refusedBatch) Query() (pgx.Rows, error)         { return nil, r.err }
func (r refusedBatch) QueryRow() pgx.Row                { return refusedRow(r) }
func (refusedBatch) Tx() pgx.Tx                         { return nil }
func (r refusedBatch) Close() error                     { return r.err }

// refusedSQL is a refusal for database/sql.
type refusedSQL struct{ err error }

func (r refusedSQL) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, r.err
}

func (r refusedSQL) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, r.err
}

func (r refusedSQL) Commit() error { return r.err }
func (refusedSQL) Rollback() error { return nil }
