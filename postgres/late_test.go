package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// fresh makes n events whose ids are known to be new.
func (d *desk) fresh(n int, keyed bool, handlers ...string) []store.NewEvent {
	events := d.events(n, keyed, handlers...)
	for i := range events {
		events[i].Fresh = true
	}
	return events
}

// B4 S6: an append of fresh events that comes last goes to the server with the commit; where there are several keys,
// one more statement locks them.
func TestCostOfFreshPublish(t *testing.T) {
	t.Parallel()
	d, n := newCountedDesk(t, postgres.Config{})
	for _, keyed := range []bool{false, true} {
		costs := make(map[int]cost)
		for _, size := range []int{2, 30, 1000} {
			d.publish(d.fresh(size, keyed, "h", "g")...)
			events := d.fresh(size, keyed, "h", "g")
			costs[size] = n.of(func() { d.publish(events...) })
		}
		most := cost{2, 3}
		if keyed {
			most = cost{2, 4}
		}
		same(t, "a publish of many fresh events", costs, most, n.sent())
		d.publish(d.fresh(1, keyed, "h", "g")...)
		event := d.fresh(1, keyed, "h", "g")
		same(t, "a publish of a fresh event", map[int]cost{1: n.of(func() { d.publish(event...) })}, cost{2, 3}, n.sent())
	}
}

// B3 B4: whoever uses the transaction finds what was published in it, by whatever means, and what undoes it undoes that.
func TestLateAppendIsThereForAll(t *testing.T) {
	t.Parallel()
	const count = "SELECT count(*) FROM relaybus_events"
	for name, use := range map[string]func(ctx context.Context, tx pgx.Tx) (seen int, err error){
		"query row": func(ctx context.Context, tx pgx.Tx) (seen int, err error) {
			return seen, tx.QueryRow(ctx, count).Scan(&seen)
		},
		"query": func(ctx context.Context, tx pgx.Tx) (int, error) {
			rows, err := tx.Query(ctx, count)
			if err != nil {
				return 0, err
			}
			return pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		},
		"exec": func(ctx context.Context, tx pgx.Tx) (int, error) {
			tag, err := tx.Exec(ctx, "UPDATE relaybus_events SET source = 'seen'")
			return int(tag.RowsAffected()), err
		},
		"batch": func(ctx context.Context, tx pgx.Tx) (seen int, err error) {
			b := new(pgx.Batch)
			b.Queue(count)
			results := tx.SendBatch(ctx, b)
			err = results.QueryRow().Scan(&seen)
			return seen, errors.Join(err, results.Close())
		},
		"prepare": func(ctx context.Context, tx pgx.Tx) (seen int, err error) {
			if _, err := tx.Prepare(ctx, "seen", count); err != nil {
				return 0, err
			}
			return seen, tx.QueryRow(ctx, "seen").Scan(&seen)
		},
		"connection": func(ctx context.Context, tx pgx.Tx) (seen int, err error) {
			return seen, tx.Conn().QueryRow(ctx, count).Scan(&seen)
		},
		"copy": func(ctx context.Context, tx pgx.Tx) (seen int, err error) {
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"seen"}, pgx.CopyFromRows([][]any{{1}})); err != nil {
				return 0, err
			}
			return seen, tx.Conn().QueryRow(ctx, count).Scan(&seen)
		},
		"large object": func(ctx context.Context, tx pgx.Tx) (seen int, err error) {
			objects := tx.LargeObjects()
			if _, err := objects.Create(ctx, 0); err != nil {
				return 0, err
			}
			return seen, tx.QueryRow(ctx, count).Scan(&seen)
		},
		"savepoint": func(ctx context.Context, tx pgx.Tx) (seen int, err error) {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return 0, err
			}
			return seen, errors.Join(inner.QueryRow(ctx, count).Scan(&seen), inner.Rollback(ctx))
		},
		"joined": func(ctx context.Context, tx pgx.Tx) (seen int, err error) {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return 0, err
			}
			return seen, errors.Join(inner.QueryRow(ctx, count).Scan(&seen), inner.Commit(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
			d.exec("CREATE TABLE copied (seen integer)")
			err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
				if _, err := d.s.Append(ctx, tx, d.fresh(1, true, "h"), d.now); err != nil {
					return err
				}
				if seen, err := use(ctx, postgres.Tx(ctx)); err != nil || seen != 1 {
					t.Errorf("it sees %d events, want 1: %v", seen, err)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("transact: %v", err)
			}
			d.wantCounts(1, 0)
		})
	}
}

// B3: what was published after a savepoint goes with it, also when only statements tell of it.
func TestLateAppendInSavepoint(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	for name, run := range map[string]func(ctx context.Context, tx pgx.Tx, publish func()) error{
		"of pgx": func(ctx context.Context, tx pgx.Tx, publish func()) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			publish()
			return inner.Rollback(ctx)
		},
		"by statements": func(ctx context.Context, tx pgx.Tx, publish func()) error {
			if _, err := tx.Exec(ctx, "SAVEPOINT here"); err != nil {
				return err
			}
			publish()
			_, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT here")
			return err
		},
		"on the connection": func(ctx context.Context, tx pgx.Tx, publish func()) error {
			conn := tx.Conn()
			if _, err := conn.Exec(ctx, "SAVEPOINT here"); err != nil {
				return err
			}
			publish()
			_, err := conn.Exec(ctx, "ROLLBACK TO SAVEPOINT here")
			return err
		},
	} {
		err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			return run(ctx, postgres.Tx(ctx), func() {
				if _, err := d.s.Append(ctx, tx, d.fresh(3, true, "h"), d.now); err != nil {
					t.Errorf("%s: append: %v", name, err)
				}
			})
		})
		if err != nil {
			t.Fatalf("%s: transact: %v", name, err)
		}
		d.wantCounts(0, 0)
	}
}

// B3: who ends the transaction by the driver's means decides over what was published in it, and has it no longer.
func TestLateAppendEndsWithTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	for _, c := range []struct {
		end  func(ctx context.Context, tx pgx.Tx) error
		kept int64
	}{
		{func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, 0},
		{func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, 1},
	} {
		var native pgx.Tx
		err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			native = postgres.Tx(ctx)
			if _, err := d.s.Append(ctx, tx, d.fresh(1, false, "h"), d.now); err != nil {
				return err
			}
			if err := c.end(ctx, native); err != nil {
				t.Errorf("end: %v", err)
			}
			if _, err := d.s.Append(ctx, tx, d.fresh(1, false, "h"), d.now); !errors.Is(err, store.ErrTxDone) {
				t.Errorf("an append after the end: %v", err)
			}
			return nil
		})
		if !errors.Is(err, store.ErrTxDone) {
			t.Errorf("transact: %v, want ErrTxDone", err)
		}
		d.wantCounts(c.kept, 0)
	}
	var native pgx.Tx
	err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		native = postgres.Tx(ctx)
		_, err := d.s.Append(ctx, tx, d.fresh(1, false, "h"), d.now)
		return err
	})
	if err != nil {
		t.Fatalf("transact: %v", err)
	}
	_, err = native.Exec(t.Context(), "DELETE FROM relaybus_deliveries")
	if !errors.Is(err, pgx.ErrTxClosed) || !errors.Is(native.Rollback(t.Context()), pgx.ErrTxClosed) || native.Conn() != nil {
		t.Errorf("the transaction works on after its end: %v", err)
	}
	d.wantCounts(2, 0)
}

// P2 Z13: a schema that is newer than the library refuses what is sent with the commit, too, and nothing is committed.
func TestLateAppendOnNewerSchema(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	d.exec("CREATE TABLE mine (n integer)")
	d.publish(d.fresh(1, false, "h")...)
	d.exec("UPDATE relaybus_meta SET version = 99, oldest = 99")
	for _, n := range []int{1, 3} {
		err := d.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			if _, err := postgres.Tx(ctx).Exec(ctx, "INSERT INTO mine VALUES (1)"); err != nil {
				return err
			}
			_, err := d.s.Append(ctx, tx, d.fresh(n, true, "h"), d.now)
			return err
		})
		if !errors.Is(err, store.ErrConfiguration) || errors.Is(err, store.ErrOutcomeUnknown) {
			t.Errorf("transact: %v, want a configuration error", err)
		}
	}
	var left int
	if err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM mine").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows were committed: %v", left, err)
	}
}

// An id that is there all the same is a conflict, and nothing is committed.
func TestFreshIDExists(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	events := d.fresh(3, true, "h")
	d.publish(events[0])
	for _, again := range [][]store.NewEvent{events[:1], events} {
		if err := d.tryPublish(again...); !errors.Is(err, store.ErrConflict) {
			t.Errorf("publish: %v, want ErrConflict", err)
		}
	}
	d.wantCounts(1, 0)
	if got := idsOf(d.claim(10, "h")); !slices.Equal(got, []string{events[0].ID}) {
		t.Errorf("claimed %q", got)
	}
}
