package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier runs statements, on a connection or in a transaction of either driver.
type querier interface {
	// exec returns the number of rows that the statement changed.
	exec(ctx context.Context, text string, args ...any) (int64, error)
	// rows calls scan for each row until it returns false or an error.
	rows(ctx context.Context, text string, scan scanRow, args ...any) error
}

// scanRow gets a function that scans one row.
type scanRow func(scan func(dest ...any) error) (more bool, err error)

// native runs statements by pgx.
type native struct {
	q interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	}
}

func (n native) exec(ctx context.Context, text string, args ...any) (int64, error) {
	tag, err := n.q.Exec(ctx, text, args...)
	return tag.RowsAffected(), err
}

func (n native) rows(ctx context.Context, text string, scan scanRow, args ...any) error {
	rows, err := n.q.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	return each(rows, scan)
}

func each(rows pgx.Rows, scan scanRow) error {
	defer rows.Close()
	for rows.Next() {
		if more, err := scan(rows.Scan); err != nil || !more {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}

// standard runs statements by database/sql, whose drivers differ in how they take
// arrays: all take their text.
type standard struct{ q SQLTx }

func (s standard) exec(ctx context.Context, text string, args ...any) (int64, error) {
	result, err := s.q.ExecContext(ctx, text, plainArgs(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s standard) rows(ctx context.Context, text string, scan scanRow, args ...any) (err error) {
	rows, err := s.q.QueryContext(ctx, text, plainArgs(args)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if more, err := scan(rows.Scan); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// plainArgs turns arrays into their text.
func plainArgs(args []any) []any {
	plain := make([]any, len(args))
	for i, arg := range args {
		switch list := arg.(type) {
		case []int64:
			plain[i] = numberArray(list)
		case []int32:
			plain[i] = numberArray(list)
		case []int16:
			plain[i] = numberArray(list)
		case []string:
			plain[i] = textArray(list)
		case []*string:
			plain[i] = nullableArray(list)
		default:
			plain[i] = arg
		}
	}
	return plain
}

func numberArray[N int64 | int32 | int16](list []N) string {
	text := []byte{'{'}
	for i, n := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(n), 10)
	}
	return string(append(text, '}'))
}

func textArray(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = quoteElement(text)
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

func nullableArray(list []*string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = "NULL"
		if text != nil {
			quoted[i] = quoteElement(*text)
		}
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

func quoteElement(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// parseArray reads the text of an array of numbers, as integer[]::text gives it.
func parseArray(text string) ([]int32, error) {
	text = strings.Trim(text, "{}")
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	list := make([]int32, len(parts))
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 10, 32)
		if err != nil {
			return nil, err
		}
		list[i] = int32(n)
	}
	return list, nil
}

// session runs the store's statements in one transaction, or on one connection.
type session struct {
	querier

	s *Store
	// committed runs after the commit: what is kept in memory follows.
	committed []func()
	// keys are the ordering keys that were locked in the transaction, up to some.
	keys map[int32]struct{}
	// private says that no caller has a hand in the transaction.
	private bool
}

func (x *session) onCommit(f func()) { x.committed = append(x.committed, f) }

// hinted reads a delivery that may be claimable once this is committed.
func (x *session) hinted(scan func(...any) error) (bool, error) {
	var at slice
	var due int64
	err := scan(&at.handler, &at.lane, &due)
	x.onCommit(func() { x.s.hint(at, due) })
	return true, err
}

// row reads at most one row.
func (x *session) row(ctx context.Context, text string, dest []any, args ...any) (found bool, err error) {
	err = x.rows(ctx, text, func(scan func(...any) error) (bool, error) {
		found = true
		return false, scan(dest...)
	}, args...)
	return found, err
}

// SQLTx is what [JoinSQL] needs of a transaction of database/sql. A *sql.Tx, a
// *sqlx.Tx, a bun.Tx and the transaction of ent's SQL driver are one, and so is a
// generated *ent.Tx with the feature sql/execquery. GORM's is found by
//
//	tx, ok := db.Statement.ConnPool.(postgres.SQLTx) // not ok outside of a transaction
//
// A *sql.DB and a *sql.Conn are none, as they would commit each statement by itself.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}
