package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/riverqueue/river/riverdriver/riversqlite"
)

// riverSQLitePoll is how often a tuned client asks for jobs by itself: River's own
// signal on SQLite is polled for every 50 ms.
const riverSQLitePoll = 10 * time.Millisecond

func openSQLiteRiver(ctx context.Context, e setting) (queue, error) {
	db, err := openDatabase(ctx, e.address)
	if err != nil {
		return nil, err
	}
	list, err := newOrders(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	r := &riverPeer[*sql.Tx]{
		setting: e,
		transact: func(ctx context.Context, ord order, write func(tx *sql.Tx) error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := list.add(ctx, tx, ord); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			if err := write(tx); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
		tally:   func(ctx context.Context) (tally, error) { return countTables(ctx, db, riverWaiting) },
		release: func() error { return errors.Join(list.close(), db.Close()) },
	}
	if err := r.open(ctx, riversqlite.New(db), riverSQLitePoll); err != nil {
		return nil, errors.Join(err, r.release())
	}
	return r, nil
}
