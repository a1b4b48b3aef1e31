package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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

func (r refusal) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return refusedRows(r), r.err
}

func (r refusal) QueryRow(context.Context, string, ...any) pgx.Row { return refusedRow(r) }

// refusedRows is what callers of Query may use without a look at its error.
type refusedRows struct{ err error }

func (refusedRows) Close()                                       {}
func (r refusedRows) Err() error                                 { return r.err }
func (refusedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (refusedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (refusedRows) Next() bool                                   { return false }
func (r refusedRows) Scan(...any) error                          { return r.err }
func (r refusedRows) Values() ([]any, error)                     { return nil, r.err }
func (refusedRows) RawValues() [][]byte                          { return nil }
func (refusedRows) Conn() *pgx.Conn                              { return nil }
func (refusedRows) TypeMap() *pgtype.Map                         { return nil }

type refusedRow struct{ err error }

func (r refusedRow) Scan(...any) error { return r.err }

type refusedBatch struct{ err error }

func (r refusedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r refusedBatch) Query() (pgx.Rows, error)         { return refusedRows(r), r.err }
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
