package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// crammed is a store with many rows that no hot statement must look at, and few that are due.
type crammed struct {
	*desk
	identity     string
	handler      int32 // the number of the handler that has work
	owner, other int64 // who has claimed, the other one with a lease that is over
	// events, gens and lanes are what the owner runs, handlers its handlers.
	events, gens, lanes, handlers []int64
	// others are what the other one runs.
	others []int64
	// heads are the first deliveries of the keys that the owner runs, and due the lanes that it has.
	due []int64
	now int64
}

// newCrammed fills a database with n events, of which one in five has completed, is not due yet, is dead, is for another
// handler, and waits behind one blocked key. Nobody analyses the tables.
func newCrammed(t *testing.T, n int) *crammed {
	t.Helper()
	c := &crammed{desk: newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{History: true})}
	c.exec(`DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'relaybus_%' LOOP
		EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = false)', name); END LOOP; END $$`)
	err := c.s.RecordHandlers(t.Context(), []store.HandlerEntry{
		{Handler: store.Handler{ID: "h"}}, {Handler: store.Handler{ID: "busy"}}, {Handler: store.Handler{ID: "now", Aliases: []string{"then"}}},
	}, c.desk.now)
	if err != nil {
		t.Fatalf("record handlers: %v", err)
	}
	c.now = c.desk.now.UnixMilli()
	c.handler = int32(c.number(`SELECT ref FROM relaybus_handlers WHERE id = 'h'`)) //nolint:gosec // it is an integer there
	busy := c.number(`SELECT ref FROM relaybus_handlers WHERE id = 'busy'`)
	hot := lane.Of("hot", "")
	for _, text := range []string{
		fmt.Sprintf(`INSERT INTO relaybus_events (seq, created, id, type, source, key, handlers, headers, payload) OVERRIDING SYSTEM VALUE
			SELECT n, %[2]d - %[1]d + n, 'old-' || n, 'order.placed.v1', 'orders',
				CASE WHEN n %% 5 = 4 THEN 'hot' WHEN n %% 2 = 0 THEN 'old-key-' || n END, ARRAY[%[3]d], '{}', '{"n":1}'
			FROM generate_series(1, %[1]d) n`, n, c.now, c.handler),
		fmt.Sprintf(`INSERT INTO relaybus_history (event, handler, at, due, attempts, lost)
			SELECT n, %d, %d - n, 0, 0, 0 FROM generate_series(5, %d, 5) n`, c.handler, c.now, n),
		fmt.Sprintf(`INSERT INTO relaybus_completions (at, events)
			SELECT %d - min(n), array_agg(n) FROM generate_series(5, %d, 5) n GROUP BY n / 500`, c.now, n),
		fmt.Sprintf(`INSERT INTO relaybus_deliveries (event, handler, lane, due, updated, state, key, error)
			SELECT n, CASE WHEN n %% 5 = 3 THEN %[4]d ELSE %[3]d END, CASE WHEN n %% 5 = 4 THEN %[5]d ELSE n %% 256 END,
				CASE WHEN n = 4 OR n %% 5 = 1 THEN %[2]d + 3600000 + n ELSE %[2]d - 1000 + n / %[1]d END, %[2]d,
				CASE n %% 5 WHEN 2 THEN 3 WHEN 4 THEN CASE WHEN n > 4 THEN n / 5 %% 2 ELSE 0 END ELSE 0 END,
				CASE WHEN n %% 5 = 4 THEN 'hot' WHEN n %% 2 = 0 THEN 'old-key-' || n END, CASE WHEN n %% 5 = 2 THEN 'it failed' END
			FROM generate_series(1, %[1]d) n WHERE n %% 5 > 0`, n, c.now, c.handler, busy, hot),
		fmt.Sprintf(`SELECT setval('relaybus_events_seq_seq', %d)`, n),
	} {
		c.exec(text)
	}
	c.publish(append(c.desk.events(500, true, "h"), c.desk.events(500, false, "h")...)...)
	c.work(t)
	return c
}

// work lets two owners claim, and reads what the arguments of the statements are made of.
func (c *crammed) work(t *testing.T) {
	t.Helper()
	other := newStore(t, c.pool, postgres.Config{History: true})
	for owner, s := range map[string]*postgres.Store{"other": other, "w": c.s} {
		got := 0
		for tries := 0; got < batch && tries < 1000; tries++ { // Each one parks some of what the key blocks.
			r := c.request(batch-got, "h")
			r.Owner, r.Lease = owner, map[string]time.Duration{"other": time.Millisecond, "w": time.Hour}[owner]
			result, err := s.Claim(t.Context(), r)
			if err != nil {
				t.Fatalf("claim: %v", err)
			}
			got += len(result.Deliveries)
		}
		if got != batch {
			t.Fatalf("claimed %d", got)
		}
	}
	c.owner = c.number(`SELECT id FROM relaybus_owners WHERE name = 'w'`)
	c.other = c.number(`SELECT id FROM relaybus_owners WHERE name = 'other'`)
	c.events = c.numbers(`SELECT unnest(events) FROM relaybus_claims WHERE owner = $1`, c.owner)
	c.handlers = c.numbers(`SELECT unnest(handlers) FROM relaybus_claims WHERE owner = $1`, c.owner)
	c.gens = c.numbers(`SELECT unnest(gens) FROM relaybus_claims WHERE owner = $1`, c.owner)
	c.lanes = c.numbers(`SELECT unnest(lanes) FROM relaybus_claims WHERE owner = $1`, c.owner)
	c.others = c.numbers(`SELECT unnest(events) FROM relaybus_claims WHERE owner = $1`, c.other)
	c.due = c.numbers(`SELECT lane FROM relaybus_lanes WHERE owner = $1 AND handler = $2`, c.owner, c.handler)
	if err := c.pool.QueryRow(t.Context(), `SELECT identity FROM relaybus_meta`).Scan(&c.identity); err != nil {
		t.Fatalf("read the id: %v", err)
	}
}

func (c *crammed) numbers(text string, args ...any) []int64 {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), text, args...)
	if err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(list) == 0 {
		c.t.Fatalf("%s: %d rows, %v", text, len(list), err)
	}
	return list
}

func (c *crammed) number(text string) int64 {
	c.t.Helper()
	return c.numbers(text)[0]
}
