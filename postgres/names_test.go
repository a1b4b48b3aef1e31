package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// F47: any name will do for the schema and the prefix: it never becomes SQL.
func TestOddNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]postgres.Config{
		"quotes":       {Schema: `a"b''c`, Prefix: `"'`},
		"spaces":       {Schema: " two  words ", Prefix: "of mine "},
		"unicode":      {Schema: "Ünïcödé 表 🚌", Prefix: "поезд_"},
		"case":         {Schema: "Bus", Prefix: "RELAY_"},
		"injection":    {Schema: `x"; DROP SCHEMA public CASCADE; --`, Prefix: `'; DELETE FROM "`},
		"backslash":    {Schema: `\a\"b`, Prefix: `E\'`},
		"control":      {Schema: "a\nb\tc", Prefix: "\r"},
		"placeholders": {Schema: "{t:events}$1$2", Prefix: "{n:x}$1$2%s?"},
		"dots":         {Schema: "public.x", Prefix: "pg_catalog."},
		"keywords":     {Schema: "select", Prefix: "table"},
		"longest":      {Schema: strings.Repeat("s", 63), Prefix: strings.Repeat("p", 40)},
		"longest text": {Schema: strings.Repeat("é", 31), Prefix: strings.Repeat("é", 20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.History = true
			pool := newPool(t, newDatabaseURL(t))
			work(newDesk(t, pool, c))
			wantTables(t, pool, c)
			// What DDL prints has the same names.
			url := newDatabaseURL(t)
			ddl, err := newStore(t, pool, c).DDL()
			if err != nil {
				t.Fatalf("print the statements: %v", err)
			}
			administer(t, t.Context(), url, ddl)
			printed := newPool(t, url)
			wantTables(t, printed, c)
			work(newDesk(t, printed, c))
		})
	}
}

// wantTables checks that all of the store's tables have the names that they should.
func wantTables(tb testing.TB, pool interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}, c postgres.Config,
) {
	tb.Helper()
	var n, all int
	err := pool.QueryRow(tb.Context(), `SELECT count(*) FILTER (WHERE schemaname = $1 AND starts_with(tablename, $2)), count(*)
		FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`, c.Schema, c.Prefix).Scan(&n, &all)
	if err != nil || n != all || n < 8 {
		tb.Errorf("%d of %d tables have the names, %v", n, all, err)
	}
}

// F47: names that PostgreSQL would cut off, or can't have, are refused.
func TestImpossibleNames(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabaseURL(t))
	for name, c := range map[string]postgres.Config{
		"long schema":    {Schema: strings.Repeat("s", 64)},
		"long prefix":    {Prefix: strings.Repeat("p", 41)},
		"NUL":            {Schema: "a\x00b"},
		"NUL in prefix":  {Prefix: "\x00"},
		"not UTF-8":      {Prefix: "\xff"},
		"half character": {Schema: "a\xc3"},
	} {
		s, err := postgres.New(pool, c)
		if typed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(typed, store.ErrConfiguration) || s != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two stores with prefixes of their own in one schema, the one of which begins like the other, don't see each other.
func TestTwoPrefixes(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabaseURL(t))
	first := newDesk(t, pool, postgres.Config{Prefix: "a_"})
	second := newDesk(t, pool, postgres.Config{Prefix: "a_events_"})
	third := newDesk(t, pool, postgres.Config{Prefix: "a_", Schema: "other"})
	first.publish(first.event("same", "k", "h"))
	second.publish(second.event("same", "k", "h"), second.event("second", "", "h"))
	if got := third.claim(10, "h"); len(got) != 0 {
		t.Errorf("the third store has %q", idsOf(got))
	}
	a, b := first.claim(10, "h"), second.claim(10, "h")
	if len(a) != 1 || len(b) != 2 {
		t.Errorf("the stores have %q and %q", idsOf(a), idsOf(b))
	}
	first.complete(a...)
	if err := first.s.PauseHandler(t.Context(), "h", true, first.now); err != nil {
		t.Errorf("pause: %v", err)
	}
	second.wantCounts(0, 2)
	second.complete(b...)
	// Locks on a key are the store's own, too: an open transaction of the one does not hold up the other.
	tx := begin(t, pool)
	if _, err := first.s.Append(t.Context(), tx.Tx, []store.NewEvent{first.event("locks", "k", "h")}, first.now); err != nil {
		t.Fatalf("append: %v", err)
	}
	second.publish(second.event("free", "k", "h"))
	// One transaction can serve both.
	if _, err := second.s.Append(t.Context(), tx.Tx, []store.NewEvent{second.event("locks", "k", "h")}, second.now); err != nil {
		t.Errorf("append by the second store in the transaction: %v", err)
	}
}
