package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// bed is a store that is set up, for the tests of what is special to SQLite.
type bed struct {
	t    testing.TB
	s    *sqlite.Store
	path string
	now  time.Time
	ids  int
}

func newBed(tb testing.TB, c sqlite.Config) *bed {
	tb.Helper()
	return newBedAt(tb, filepath.Join(tb.TempDir(), "store.db"), c)
}

func newBedAt(tb testing.TB, path string, c sqlite.Config) *bed {
	tb.Helper()
	b := &bed{t: tb, path: path, now: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)}
	b.s = open(tb, path, c)
	if err := b.s.Setup(tb.Context()); err != nil {
		tb.Fatalf("setup: %v", err)
	}
	return b
}

func (b *bed) event(id, key string, handlers ...string) store.NewEvent {
	e := store.NewEvent{
		Event: store.Event{
			ID: id, Type: "order.placed.v1", Source: "orders", Key: key, Payload: []byte(`{}`), CreatedAt: b.now,
		},
		DueAt: b.now,
	}
	for _, h := range handlers {
		e.Handlers = append(e.Handlers, store.Handler{ID: h})
	}
	return e
}

func (b *bed) events(n int, key string, handlers ...string) []store.NewEvent {
	list := make([]store.NewEvent, n)
	for i := range list {
		b.ids++
		list[i] = b.event(fmt.Sprintf("e-%d", b.ids), key, handlers...)
	}
	return list
}

func (b *bed) tryPublish(ctx context.Context, events ...store.NewEvent) error {
	return b.s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		_, err := b.s.Append(ctx, tx, events, b.now)
		return err
	})
}

func (b *bed) publish(events ...store.NewEvent) {
	b.t.Helper()
	if err := b.tryPublish(b.t.Context(), events...); err != nil {
		b.t.Fatalf("publish: %v", err)
	}
}

func (b *bed) request(owner string, limit int, handlers ...string) store.ClaimRequest {
	r := store.ClaimRequest{Owner: owner, Limit: limit, Now: b.now, Lease: 30 * time.Second}
	for _, h := range handlers {
		r.Handlers = append(r.Handlers, store.HandlerLimit{Handler: store.Handler{ID: h}, Limit: limit})
	}
	return r
}

func (b *bed) claim(limit int, handlers ...string) []store.Claimed {
	b.t.Helper()
	result, err := b.s.Claim(b.t.Context(), b.request("w", limit, handlers...))
	if err != nil {
		b.t.Fatalf("claim: %v", err)
	}
	return result.Deliveries
}

func (b *bed) complete(claimed ...store.Claimed) {
	b.t.Helper()
	list := make([]store.Settlement, len(claimed))
	for i, c := range claimed {
		list[i] = store.Settlement{Lease: c.Lease, Action: store.Complete}
	}
	ok, err := b.s.Settle(b.t.Context(), "w", list, b.now)
	if err != nil {
		b.t.Fatalf("settle: %v", err)
	}
	for i, c := range claimed {
		if len(ok) != len(claimed) || !ok[i] {
			b.t.Fatalf("completion of %s was refused", c.Event.ID)
		}
	}
}

func (b *bed) stats() store.Stats {
	b.t.Helper()
	stats, err := b.s.Stats(b.t.Context(), b.now)
	if err != nil {
		b.t.Fatalf("stats: %v", err)
	}
	return stats
}

func (b *bed) exec(text string) {
	b.t.Helper()
	if _, err := b.s.DB().ExecContext(b.t.Context(), text); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
}

// texts returns the last column of a query.
func (b *bed) texts(query string, args ...any) (list []string) {
	b.t.Helper()
	rows, err := b.s.Reader().QueryContext(b.t.Context(), query, args...)
	if err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	for rows.Next() {
		var text string
		dest := make([]any, len(columns))
		for i := range dest {
			dest[i] = new(any)
		}
		dest[len(dest)-1] = &text
		if err := rows.Scan(dest...); err != nil {
			b.t.Fatalf("%s: %v", query, err)
		}
		list = append(list, text)
	}
	if err := rows.Err(); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	return list
}
