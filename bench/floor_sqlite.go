package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
)

// sqliteFloor writes by hand what relaybus writes: the rows of its tables, with its
// indexes, by statements that are prepared once on one connection. It does
// nothing else, so nothing that keeps these rows can be faster.
type sqliteFloor struct {
	setting

	db *sql.DB
	// mu is the queue for the one connection.
	mu                                              sync.Mutex
	conn                                            *sql.Conn
	begin, commit, rollback, order, event, delivery *sql.Stmt
	handlerList                                     string
}

func openSQLiteFloor(ctx context.Context, e setting) (queue, error) {
	if err := makeTables(ctx, e.address); err != nil {
		return nil, fmt.Errorf("make tables: %w", err)
	}
	db, err := openDatabase(ctx, e.address)
	if err != nil {
		return nil, err
	}
	f := &sqliteFloor{setting: e, db: db}
	if _, err := db.ExecContext(ctx, createOrders); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if f.conn, err = db.Conn(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&f.begin, "BEGIN IMMEDIATE"},
		{&f.commit, "COMMIT"},
		{&f.rollback, "ROLLBACK"},
		{&f.order, insertOrder},
		{&f.event, `INSERT INTO relaybus_events (id, type, source, key, created, handlers, total, payload)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`},
		{&f.delivery, `INSERT INTO relaybus_deliveries (event, handler, lane, due, key, updated)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6)`},
	} {
		*s.stmt, err = f.conn.PrepareContext(ctx, s.text) //nolint:sqlclosecheck // close does.
		if err != nil {
			return nil, errors.Join(fmt.Errorf("prepare: %w", err), f.close())
		}
	}
	var refs []string
	for i := range e.handlers {
		refs = append(refs, strconv.Itoa(i+1))
	}
	f.handlerList = "[" + strings.Join(refs, ",") + "]"
	return f, nil
}

// makeTables lets the store itself make its tables and indexes.
func makeTables(ctx context.Context, path string) error {
	s, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(s.Setup(ctx), s.Close())
}

func (f *sqliteFloor) publish(ctx context.Context, first int64, n int) error {
	now := time.Now().UnixMilli()
	rows, err := newRows(first, n, now, f.keyed)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.begin.ExecContext(ctx); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := f.write(ctx, first, rows, now); err != nil {
		_, undone := f.rollback.ExecContext(ctx)
		return errors.Join(err, undone)
	}
	_, err = f.commit.ExecContext(ctx)
	return err
}

func (f *sqliteFloor) write(ctx context.Context, first int64, rows []row, now int64) error {
	ord := newOrder(first)
	if _, err := f.order.ExecContext(ctx, ord.Number, ord.Customer, ord.Cents); err != nil {
		return fmt.Errorf("insert order: %w", err)
	}
	for _, r := range rows {
		result, err := f.event.ExecContext(ctx, r.id, eventName, "bench", r.key, now, f.handlerList, f.handlers, r.payload)
		if err != nil {
			return fmt.Errorf("insert event: %w", err)
		}
		seq, err := result.LastInsertId()
		if err != nil {
			return err
		}
		for handler := range f.handlers {
			if _, err := f.delivery.ExecContext(ctx, seq, handler+1, r.lane, now, r.key, now); err != nil {
				return fmt.Errorf("insert delivery: %w", err)
			}
		}
	}
	return nil
}

func (f *sqliteFloor) count(ctx context.Context) (t tally, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range []struct {
		n    *int64
		text string
	}{
		{&t.orders, "SELECT count(*) FROM orders"},
		{&t.waiting, "SELECT count(*) FROM relaybus_deliveries"},
	} {
		if err := f.conn.QueryRowContext(ctx, c.text).Scan(c.n); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (f *sqliteFloor) close() error {
	var errs []error
	for _, s := range []*sql.Stmt{f.begin, f.commit, f.rollback, f.order, f.event, f.delivery} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, f.conn.Close(), f.db.Close())...)
}
