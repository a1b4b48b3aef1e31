package postgres_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/internal/fleettest"
)

// contents reads what is in the database at the end.
func contents(t *testing.T, pool *pgxpool.Pool) fleettest.Contents {
	t.Helper()
	kept := fleettest.Contents{Left: make(map[string]int)}
	bySequence := make(map[int64]*fleettest.StoredEvent)
	query(t, pool, `SELECT seq, id, type, coalesce(key, ''), payload, cardinality(handlers) FROM relaybus_events`,
		func(rows pgx.Rows) error {
			var e fleettest.StoredEvent
			var payload string
			err := rows.Scan(&e.Sequence, &e.ID, &e.Type, &e.Key, &payload, &e.Handlers)
			if err == nil {
				err = json.Unmarshal([]byte(payload), &e.Payload)
			}
			kept.Events, bySequence[e.Sequence] = append(kept.Events, &e), &e
			return err
		})
	query(t, pool, `SELECT e, count(*) FROM relaybus_completions c CROSS JOIN LATERAL unnest(c.events) AS e GROUP BY e`,
		func(rows pgx.Rows) error {
			var sequence int64
			var n int
			err := rows.Scan(&sequence, &n)
			if e := bySequence[sequence]; e != nil {
				e.Completed = n
			} else {
				kept.Strangers += n
			}
			return err
		})
	query(t, pool, `SELECT d.event, h.id FROM relaybus_deliveries d JOIN relaybus_handlers h ON h.ref = d.handler
			WHERE d.state >= 2 ORDER BY h.id COLLATE "C"`,
		func(rows pgx.Rows) error {
			var sequence int64
			var handler string
			err := rows.Scan(&sequence, &handler)
			if e := bySequence[sequence]; e != nil {
				e.Dead = append(e.Dead, handler)
			} else {
				kept.Strangers++
			}
			return err
		})
	for text, list := range map[string]*[]string{`SELECT id FROM orders`: &kept.Orders, `SELECT id FROM effects`: &kept.Effects} {
		query(t, pool, text, func(rows pgx.Rows) error {
			var id string
			err := rows.Scan(&id)
			*list = append(*list, id)
			return err
		})
	}
	for what, text := range leftovers() {
		kept.Left[what] = count(t, pool, text)
	}
	return kept
}

// leftovers count what should not be there when all work is done and all workers have ended.
func leftovers() map[string]string {
	return map[string]string{
		"unfinished deliveries":    `SELECT count(*) FROM relaybus_deliveries WHERE state < 2`,
		"deliveries that hold":     `SELECT count(*) FROM relaybus_deliveries WHERE state = 2`,
		"claim records":            `SELECT count(*) FROM relaybus_claims`,
		"owners":                   `SELECT count(*) FROM relaybus_owners`,
		"lanes that somebody has":  `SELECT count(*) FROM relaybus_lanes WHERE owner IS NOT NULL`,
		"deliveries without event": `SELECT count(*) FROM relaybus_deliveries WHERE event NOT IN (SELECT seq FROM relaybus_events)`,
	}
}

func query(t *testing.T, pool *pgxpool.Pool, text string, row func(rows pgx.Rows) error) {
	t.Helper()
	rows, err := pool.Query(t.Context(), text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, text string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), text).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}
