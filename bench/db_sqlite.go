package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver of everybody
)

// openDatabase opens a file as both peers recommend: a write-ahead log, a busy
// timeout of 5 s, foreign keys, and one connection. Transactions are
// immediate, and the cache has the size that relaybus uses, so that nobody has
// an advantage by it.
func openDatabase(ctx context.Context, path string) (*sql.DB, error) {
	query := url.Values{
		"_pragma": {
			"journal_mode(wal)", "synchronous(full)", "busy_timeout(5000)", "foreign_keys(1)",
			"temp_store(memory)", "cache_size(-8000)",
		},
		"_txlock": {"immediate"},
	}
	db, err := sql.Open("sqlite", "file:"+path+"?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return db, nil
}

// countRow reads one number.
func countRow(ctx context.Context, db *sql.DB, query string) (n int64, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// countTables is the tally of a database with two queries.
func countTables(ctx context.Context, db *sql.DB, waiting string) (t tally, err error) {
	if t.orders, err = countRow(ctx, db, "SELECT count(*) FROM orders"); err != nil {
		return t, fmt.Errorf("count orders: %w", err)
	}
	if t.waiting, err = countRow(ctx, db, waiting); err != nil {
		return t, fmt.Errorf("count waiting: %w", err)
	}
	return t, nil
}
