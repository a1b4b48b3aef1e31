package pgserver_test

import (
	"errors"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

func hostOf(t *testing.T, serverURL string) string {
	t.Helper()
	address, err := pgserver.Address(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func bouncer(t *testing.T, serverURL string, options pgserver.PgBouncerOptions) *pgserver.PgBouncer {
	t.Helper()
	b, err := pgserver.StartPgBouncer(t.Context(), serverURL, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func databaseOf(t *testing.T, serverURL string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// Two clients share the one connection, transaction by transaction.
func TestPgBouncerPoolsTransactions(t *testing.T) {
	t.Parallel()
	direct := shared(t)
	b := bouncer(t, direct, pgserver.PgBouncerOptions{PoolSize: 1})
	first, second := open(t, b.URL(databaseOf(t, direct))), open(t, b.URL(databaseOf(t, direct)))
	const who = "SELECT pg_backend_pid()"
	if one, other := first.query(t, who), second.query(t, who); !slices.Equal(one, other) {
		t.Errorf("the sessions of the server are %q and %q, want one", one, other)
	}

	first.query(t, "BEGIN")
	if err := second.send("SELECT 'second'"); err != nil {
		t.Fatal(err)
	}
	first.query(t, "CREATE TABLE facts (n int)")
	first.query(t, "COMMIT")
	if got, err := second.receive(); err != nil || !slices.Equal(got, []string{"second"}) {
		t.Errorf("the second client receives %q, %v", got, err)
	}
	if got := open(t, direct).query(t, "SELECT current_database(), n FROM facts"); len(got) != 0 {
		t.Errorf("the table has the rows %q, want none", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.try("SELECT 1"); err == nil {
		t.Error("the client's session lives on")
	}
}

func TestPgBouncerHasItsSettings(t *testing.T) {
	t.Parallel()
	direct := shared(t)
	b := bouncer(t, direct, pgserver.PgBouncerOptions{
		PoolSize: 3, Settings: map[string]string{"pool_mode": "session", "query_wait_timeout": "7"},
	})
	client := open(t, b.URL("pgbouncer"))
	config := client.query(t, "SHOW CONFIG") // its first column is the name, the second the value
	if !slices.Contains(config, "query_wait_timeout") {
		t.Errorf("the console shows %q", config)
	}
	client = open(t, b.URL(databaseOf(t, direct)))
	client.query(t, "SET application_name = 'kept'")
	if got := client.query(t, "SHOW application_name"); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("the session's name is %q: the mode is not session", got)
	}
}

func TestPgBouncerPreparedStatements(t *testing.T) {
	t.Parallel()
	direct := shared(t)
	b, err := pgserver.StartPgBouncer(t.Context(), direct, pgserver.PgBouncerOptions{MaxPreparedStatements: 200})
	if errors.Is(err, errors.ErrUnsupported) {
		if !strings.Contains(err.Error(), "needs 1.21") {
			t.Errorf("the error does not say what is needed: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	open(t, b.URL(databaseOf(t, direct))).query(t, "SELECT 1")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestPgBouncerDoesNotStart(t *testing.T) {
	t.Parallel()
	direct := shared(t)
	for name, settings := range map[string]map[string]string{
		"an unknown value": {"pool_mode": "no_such_mode"},
		"a bad value":      {"pool_mode": "session\nlisten_port = 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := pgserver.StartPgBouncer(t.Context(), direct, pgserver.PgBouncerOptions{Settings: settings})
			if err == nil {
				t.Fatal("it starts", b.Close())
			}
			if !strings.Contains(err.Error(), "pool_mode") {
				t.Errorf("the error does not name the setting: %v", err)
			}
		})
	}
}

// No test in parallel: they share the environment.
func TestProgramsAreMissing(t *testing.T) {
	t.Setenv("RELAYBUS_PGBOUNCER_BIN", "/no/such/pgbouncer")
	_, err := pgserver.StartPgBouncer(t.Context(), "postgres://127.0.0.1/", pgserver.PgBouncerOptions{})
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "package pgbouncer") {
		t.Errorf("without pgbouncer: %v", err)
	}
	t.Setenv("RELAYBUS_POSTGRES_BIN", "/no/such/directory")
	if _, err = pgserver.Start(t.Context(), pgserver.Options{}); err == nil || !strings.Contains(err.Error(), "RELAYBUS_POSTGRES_BIN") {
		t.Errorf("without PostgreSQL: %v", err)
	}
}
