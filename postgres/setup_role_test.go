package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// newRole makes a role that may only connect, and returns the URL of the database as that role.
func newRole(tb testing.TB, direct string) (role, asRole string) {
	tb.Helper()
	role = pgserver.NewDatabaseName()
	administer(tb, tb.Context(), direct, `CREATE ROLE `+role+` LOGIN`)
	tb.Cleanup(func() {
		administer(tb, context.WithoutCancel(tb.Context()), direct, `DROP OWNED BY `+role+`; DROP ROLE `+role)
	})
	u, err := url.Parse(direct)
	if err != nil {
		tb.Fatalf("parse url: %v", err)
	}
	u.User = url.User(role)
	return role, u.String()
}

// S1 S15: a role that may not create anything gets one clear error, and works once an administrator has run the
// statements of DDL.
func TestSetupWithoutPrivileges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]postgres.Config{
		"existing schema": {Schema: "public"},
		"new schema":      {Schema: "relay bus", Prefix: `"p'`, History: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := newDatabaseURL(t)
			administer(t, t.Context(), direct, `REVOKE CREATE ON SCHEMA public FROM public`)
			role, asRole := newRole(t, direct)
			s := newStore(t, newPool(t, asRole), c)
			err := s.Setup(t.Context())
			typed, ok := errors.AsType[*store.Error](err)
			if !ok || !errors.Is(typed, store.ErrConfiguration) || !strings.Contains(err.Error(), "DDL") {
				t.Errorf("setup: %v", err)
			}
			if cause, ok := errors.AsType[*pgconn.PgError](err); !ok || cause.Code != "42501" {
				t.Errorf("the server's error is out of reach in %v", err)
			}
			ddl, err := s.DDL()
			if err != nil {
				t.Fatalf("print the statements: %v", err)
			}
			administer(t, t.Context(), direct, ddl)
			schema := pgx.Identifier{c.Schema}.Sanitize()
			administer(t, t.Context(), direct, `GRANT USAGE ON SCHEMA `+schema+` TO `+role+`;
				GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA `+schema+` TO `+role+`;
				GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA `+schema+` TO `+role)
			c.History = true
			work(newDesk(t, newPool(t, asRole), c))
		})
	}
}

// S1: a role that may create tables in a schema need not be allowed to create schemas.
func TestSetupInGivenSchema(t *testing.T) {
	t.Parallel()
	direct := newDatabaseURL(t)
	role, asRole := newRole(t, direct)
	administer(t, t.Context(), direct, `CREATE SCHEMA given; GRANT USAGE, CREATE ON SCHEMA given TO `+role)
	s := newStore(t, newPool(t, asRole), postgres.Config{Schema: "given"})
	if err := s.Setup(t.Context()); err != nil {
		t.Errorf("setup: %v", err)
	}
}

// S1: what DDL prints is what Setup makes.
func TestDDLIsWhatSetupMakes(t *testing.T) {
	t.Parallel()
	made, printed := newDatabaseURL(t), newDatabaseURL(t)
	s := newDesk(t, newPool(t, made), postgres.Config{}).s
	ddl, err := s.DDL()
	if err != nil {
		t.Fatalf("print the statements: %v", err)
	}
	administer(t, t.Context(), printed, ddl)
	want, got := catalogOf(t, made), catalogOf(t, printed)
	if want != got || !strings.Contains(want, "relaybus_deliveries_ready") {
		t.Errorf("the statements make\n%s\nand setup makes\n%s", got, want)
	}
	// It is a database of its own: nobody takes it for the other one.
	d := newDesk(t, newPool(t, printed), postgres.Config{})
	other := newPool(t, made)
	tx := begin(t, other)
	if err := d.s.CheckTx(t.Context(), tx.Tx); !errors.Is(err, store.ErrForeignTx) {
		t.Errorf("a transaction of the other database: %v", err)
	}
}

// catalogOf describes the tables and indexes of a database.
func catalogOf(tb testing.TB, url string) string {
	tb.Helper()
	pool := newPool(tb, url)
	var text string
	err := pool.QueryRow(tb.Context(), `SELECT string_agg(line, E'\n' ORDER BY line) FROM (
		SELECT format('%s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
			pg_get_expr(f.adbin, f.adrelid)) AS line
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef f ON f.adrelid = c.oid AND f.adnum = a.attnum
		WHERE c.relname LIKE 'relaybus%' AND c.relkind = 'r' AND a.attnum > 0
		UNION ALL SELECT format('%s %s %s', relname, relkind, reloptions) FROM pg_class WHERE relname LIKE 'relaybus%'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'relaybus%'
		UNION ALL SELECT format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE conname LIKE 'relaybus%'
		UNION ALL SELECT format('version %s from %s', version, oldest) FROM relaybus_meta) lines`).Scan(&text)
	if err != nil {
		tb.Fatalf("read the catalogue: %v", err)
	}
	return text
}

// F08 S15: a database that can't keep every text is refused.
func TestSetupRefusesEncodings(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"SQL_ASCII", "LATIN1"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			admin, err := cluster.AdminURL(t.Context())
			if err != nil {
				t.Fatalf("find PostgreSQL: %v", err)
			}
			name := pgserver.NewDatabaseName()
			administer(t, t.Context(), admin, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING '"+encoding+"' LOCALE 'C'")
			t.Cleanup(func() {
				administer(t, context.WithoutCancel(t.Context()), admin, "DROP DATABASE "+name+" WITH (FORCE)")
			})
			url, err := cluster.URL(t.Context(), name)
			if err != nil {
				t.Fatalf("find PostgreSQL: %v", err)
			}
			pool := newPool(t, url)
			s := newStore(t, pool, postgres.Config{Schema: "bus"})
			err = s.Setup(t.Context())
			if typed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(typed, store.ErrConfiguration) {
				t.Errorf("setup: %v", err)
			}
			var n int
			err = pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname = 'bus'`).Scan(&n)
			if err != nil || n != 0 {
				t.Errorf("%d schemas are left behind, %v", n, err)
			}
		})
	}
}
