package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// F40: with a schema of a newer version that says that this one can't work with it, every call is refused, and nothing
// is touched.
func TestSchemaTooNew(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{History: true})
	d.exec(`CREATE TABLE effects (id text)`)
	d.publish(append(d.events(5, true, "h"), d.events(5, false, "h")...)...)
	d.publish(d.event("cancel", "", "other"), d.event("dead", "", "h"))
	running := d.claim(4, "h")
	d.complete(running[0])
	d.settle(store.Bury, running[1])
	running = running[2:]
	caller := begin(t, d.pool)
	if err := d.s.CheckTx(t.Context(), caller.Tx); err != nil {
		t.Fatalf("check transaction: %v", err)
	}
	old := begin(t, d.pool)

	d.exec(`UPDATE relaybus_meta SET version = 2, oldest = 2`)
	before := allRows(d)
	fresh := newStore(t, d.pool, postgres.Config{History: true})
	for name, call := range everyCall(d, running) {
		for who, s := range map[string]*postgres.Store{"running": d.s, "fresh": fresh} {
			if who == "fresh" && (name == "settle" || name == "extend" || name == "relinquish" || name == "complete in a transaction") {
				continue // It holds nothing, so it is not asked.
			}
			err := call(s)
			if typed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(typed, store.ErrSchemaTooNew) || !errors.Is(typed, store.ErrConfiguration) {
				t.Errorf("%s by a %s store: %v", name, who, err)
			}
		}
	}
	for name, tx := range map[string]store.Tx{"joined before": caller.Tx, "joined afterwards": old.Tx} {
		_, err := d.s.Append(t.Context(), tx, []store.NewEvent{d.event("late", "k", "h")}, d.now)
		if !errors.Is(err, store.ErrSchemaTooNew) {
			t.Errorf("append in a transaction that was %s: %v", name, err)
		}
	}
	if err := errors.Join(caller.Commit(), old.Commit()); err != nil {
		t.Errorf("commit: %v", err)
	}
	if after := allRows(d); after != before {
		t.Errorf("the tables have changed: these lines were not there before\n%s", linesBeyond(after, before))
	}
}

// everyCall has every call of a store that asks the database.
func everyCall(d *desk, running []store.Claimed) map[string]func(s *postgres.Store) error {
	ctx := d.t.Context()
	id := store.DeliveryID{EventID: "e-9", Handler: "h"}
	settlements := []store.Settlement{{Lease: running[0].Lease, Action: store.Complete}, {Lease: running[1].Lease, Action: store.Release}}
	calls := map[string]func(s *postgres.Store) error{
		"setup": func(s *postgres.Store) error { return s.Setup(ctx) },
		"claim": func(s *postgres.Store) error { _, err := s.Claim(ctx, d.request(10, "h")); return err },
		"claim of a new handler": func(s *postgres.Store) error {
			_, err := s.Claim(ctx, d.request(10, "new"))
			return err
		},
		"extend": func(s *postgres.Store) error {
			_, err := s.Extend(ctx, "w", []store.Lease{running[0].Lease}, d.now, time.Minute)
			return err
		},
		"settle":     func(s *postgres.Store) error { _, err := s.Settle(ctx, "w", settlements, d.now); return err },
		"relinquish": func(s *postgres.Store) error { return s.Relinquish(ctx, "w", d.now) },
		"complete in a transaction": func(s *postgres.Store) error {
			return s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
				return s.CompleteTx(ctx, tx, "w", running[0].Lease, d.now)
			})
		},
		"record handlers": func(s *postgres.Store) error {
			return s.RecordHandlers(ctx, []store.HandlerEntry{{Handler: store.Handler{ID: "h"}}}, d.now)
		},
		"list handlers":  func(s *postgres.Store) error { _, err := s.Handlers(ctx); return err },
		"retire handler": func(s *postgres.Store) error { return s.RetireHandler(ctx, "h", d.now) },
		"pause handler":  func(s *postgres.Store) error { return s.PauseHandler(ctx, "h", true, d.now) },
		"list": func(s *postgres.Store) error {
			_, err := s.List(ctx, store.Filter{}, store.Page{Limit: 10})
			return err
		},
		"get event":     func(s *postgres.Store) error { _, _, err := s.GetEvent(ctx, "e-1"); return err },
		"stats":         func(s *postgres.Store) error { _, err := s.Stats(ctx, d.now); return err },
		"requeue":       func(s *postgres.Store) error { return s.Requeue(ctx, []store.DeliveryID{id}, d.now) },
		"requeue where": func(s *postgres.Store) error { _, err := s.RequeueWhere(ctx, store.Filter{}, 10, d.now); return err },
		"bury":          func(s *postgres.Store) error { return s.BuryPending(ctx, id, "", d.now) },
		"reschedule":    func(s *postgres.Store) error { return s.ReschedulePending(ctx, id, d.now, d.now) },
		"skip":          func(s *postgres.Store) error { return s.Skip(ctx, id, d.now) },
		"cancel":        func(s *postgres.Store) error { return s.CancelEvent(ctx, "cancel", d.now) },
		"drop":          func(s *postgres.Store) error { _, err := s.DropPending(ctx, "h", 10, d.now); return err },
		"purge": func(s *postgres.Store) error {
			_, err := s.Purge(ctx, store.PurgeRequest{CompletedBefore: d.now.Add(time.Hour), DeadBefore: d.now.Add(time.Hour), Limit: 10})
			return err
		},
	}
	for name, events := range map[string][]store.NewEvent{
		"one": {d.event("new", "", "h")}, "one with a key": {d.event("new", "k", "h")}, "a known one": {d.event("e-1", "", "h", "other")},
		"many": {d.event("new", "", "h"), d.event("new 2", "k", "h")}, "one for a new handler": {d.event("new", "", "nobody")},
	} {
		calls["append "+name] = func(s *postgres.Store) error {
			return s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
				if err := effect(ctx, tx, name); err != nil {
					return err
				}
				_, err := s.Append(ctx, tx, events, d.now)
				return err
			})
		}
	}
	return calls
}

// allRows are all rows of all tables.
func allRows(d *desk) (text string) {
	d.t.Helper()
	const each = `SELECT string_agg(format('%s: %s', tablename, query_to_xml(format('SELECT t::text AS r FROM %I.%I t ORDER BY 1', schemaname, tablename),
		true, true, '')), E'\n' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'`
	if err := d.pool.QueryRow(d.t.Context(), each).Scan(&text); err != nil {
		d.t.Fatalf("read the tables: %v", err)
	}
	return text
}

// linesBeyond are the lines that a text has and another one lacks.
func linesBeyond(text, other string) string {
	had := strings.Split(other, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return slices.Contains(had, line) }), "\n")
}

// F40: one that says that this version can go on is worked with, and stays as it is.
func TestSchemaNextVersionBeside(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{History: true})
	d.publish(d.event("before", "", "first"))
	running := d.claim(1, "first")
	d.exec(`UPDATE relaybus_meta SET version = 2, oldest = 1`)
	d.complete(running...)
	work(newDesk(t, d.pool, postgres.Config{History: true}))
	var version int
	if err := d.pool.QueryRow(t.Context(), `SELECT version FROM relaybus_meta`).Scan(&version); err != nil || version != 2 {
		t.Errorf("the version is %d, %v", version, err)
	}
}
