package sqlite_test

import (
	"encoding/json"
	"testing"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/sqlite"
)

// contents reads what is in the file at the end.
func contents(t *testing.T, s *sqlite.Store) fleettest.Contents {
	t.Helper()
	kept := fleettest.Contents{Left: make(map[string]int)}
	bySequence := make(map[int64]*fleettest.StoredEvent)
	query(t, s, `SELECT seq, id, type, ifnull(key, ''), payload, total FROM relaybus_events`, func(scan func(...any) error) error {
		var e fleettest.StoredEvent
		var payload []byte
		err := scan(&e.Sequence, &e.ID, &e.Type, &e.Key, &payload, &e.Handlers)
		if err == nil {
			err = json.Unmarshal(payload, &e.Payload)
		}
		kept.Events, bySequence[e.Sequence] = append(kept.Events, &e), &e
		return err
	})
	query(t, s, `SELECT j.value, count(*) FROM relaybus_completions c, json_each(c.list) j GROUP BY j.value`,
		func(scan func(...any) error) error {
			var sequence int64
			var n int
			err := scan(&sequence, &n)
			if e := bySequence[sequence]; e != nil {
				e.Completed = n
			} else {
				kept.Strangers += n
			}
			return err
		})
	query(t, s, `SELECT d.event, h.id FROM relaybus_deliveries d JOIN relaybus_handlers h ON h.ref = d.handler
			WHERE d.state >= 2 ORDER BY h.id`,
		func(scan func(...any) error) error {
			var sequence int64
			var handler string
			err := scan(&sequence, &handler)
			if e := bySequence[sequence]; e != nil {
				e.Dead = append(e.Dead, handler)
			} else {
				kept.Strangers++
			}
			return err
		})
	for text, list := range map[string]*[]string{`SELECT id FROM orders`: &kept.Orders, `SELECT id FROM effects`: &kept.Effects} {
		query(t, s, text, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			*list = append(*list, id)
			return err
		})
	}
	for what, text := range map[string]string{
		"unfinished deliveries":    `SELECT count(*) FROM relaybus_deliveries WHERE state < 2`,
		"deliveries that hold":     `SELECT count(*) FROM relaybus_deliveries WHERE state = 2`,
		"claim records":            `SELECT count(*) FROM relaybus_claims`,
		"owners":                   `SELECT count(*) FROM relaybus_owners`,
		"lanes that somebody has":  `SELECT count(*) FROM relaybus_lanes WHERE owner <> 0`,
		"deliveries without event": `SELECT count(*) FROM relaybus_deliveries WHERE event NOT IN (SELECT seq FROM relaybus_events)`,
		"integrity problems":       `SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'`,
	} {
		query(t, s, text, func(scan func(...any) error) error {
			var n int
			err := scan(&n)
			kept.Left[what] = n
			return err
		})
	}
	return kept
}

func query(t *testing.T, s *sqlite.Store, text string, row func(scan func(...any) error) error) {
	t.Helper()
	rows, err := s.Reader().QueryContext(t.Context(), text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
