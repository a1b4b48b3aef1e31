package postgres_test

import (
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/postgres"
)

// grants are those of the documentation, for a role named app.
const grants = `GRANT USAGE ON SCHEMA public TO app;
	GRANT SELECT ON relaybus_meta TO app;
	GRANT SELECT, INSERT, UPDATE, DELETE ON relaybus_events, relaybus_deliveries, relaybus_handlers, relaybus_owners, relaybus_lanes,
		relaybus_claims, relaybus_completions, relaybus_accounts, relaybus_history TO app;
	GRANT SELECT ON SEQUENCE relaybus_events_seq_seq TO app`

// S15: a role that has what the documentation says, and nothing else, can do everything on tables that are there.
func TestGrantsOfTheDocumentation(t *testing.T) {
	t.Parallel()
	direct := newDatabaseURL(t)
	administer(t, t.Context(), direct, `REVOKE ALL ON SCHEMA public FROM public`)
	ddl, err := newStore(t, newPool(t, direct), postgres.Config{}).DDL()
	if err != nil {
		t.Fatalf("print the statements: %v", err)
	}
	administer(t, t.Context(), direct, ddl)
	role, asRole := newRole(t, direct)
	administer(t, t.Context(), direct, strings.ReplaceAll(grants, " app", " "+role))
	d := newDesk(t, newPool(t, asRole), postgres.Config{History: true, NotifyInTransaction: true})
	work(d)
	d.listen().awaitPublish(d.second())
}
