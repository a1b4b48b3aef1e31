package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// refusing lets a commit fail with the code of each row that was written.
const refusing = `CREATE TABLE refusals (code text);
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = NEW.code; END $$;
	CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON refusals DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();
	CREATE TABLE parents (id int PRIMARY KEY);
	CREATE TABLE children (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`

// commitAfter publishes an event, and commits after the statement of the caller.
func (d *desk) commitAfter(id, text string, args ...any) error {
	return d.s.Transact(d.t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if _, err := postgres.Tx(ctx).Exec(ctx, text, args...); err != nil {
			return err
		}
		e := d.event(id, "", "h")
		e.Fresh = true // It goes to the server with the commit.
		_, err := d.s.Append(ctx, tx, []store.NewEvent{e}, d.now)
		return err
	})
}

// B10 B12: a commit that the caller's own tables refuse is no outage, for which a transactional handler is tried again
// without an attempt. Nothing was committed, and that is known.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	d.exec(refusing)
	d.publish(d.event("known", "", "h"))
	check := func(what string, err, class error) {
		t.Helper()
		outage := errors.Is(err, store.ErrUnavailable)
		if !errors.Is(err, class) || outage != (class == store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) { //nolint:errorlint // the wanted class itself
			t.Errorf("%s: %v, want %v", what, err, class)
		}
	}
	check("foreign key", d.commitAfter("lost-child", `INSERT INTO children VALUES (1)`), store.ErrInvalidArgument)
	for code, class := range map[string]error{
		"P0001": store.ErrInvalidArgument, // RAISE EXCEPTION
		"P0002": store.ErrInvalidArgument,
		"MY001": store.ErrInvalidArgument, // a code of the caller's own
		"23502": store.ErrInvalidArgument, // not null
		"23514": store.ErrInvalidArgument, // check
		"44000": store.ErrInvalidArgument, // check option of a view
		"22003": store.ErrInvalidArgument, // number out of range
		"54000": store.ErrInvalidArgument, // such as a row that is too large for its index
		"23505": store.ErrConflict,
		"40001": store.ErrConflict,
		"40P01": store.ErrConflict,
		"42883": store.ErrConfiguration, // no such function
		"53400": store.ErrConfiguration, // a limit of the configuration
		"53100": store.ErrUnavailable,   // disk full
		"53200": store.ErrUnavailable,   // out of memory
		"53300": store.ErrUnavailable,   // too many connections
		"55006": store.ErrUnavailable,   // in use
		"58030": store.ErrUnavailable,   // input and output
		"XX000": store.ErrUnavailable,   // internal error
	} {
		check(code, d.commitAfter("lost-"+code, `INSERT INTO refusals VALUES ($1)`, code), class)
	}
	d.wantCounts(1, 0)
}

// F61: that the server's queue of notifications is full passes, and is told from a value that is too large.
func TestFullNotificationQueue(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{NotifyInTransaction: true})
	d.exec(refusing)
	// The server says the same of its queue at the commit.
	if err := d.commitAfter("lost", `INSERT INTO refusals VALUES ('54000')`); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("commit: %v, want ErrUnavailable", err)
	}
	d.wantCounts(0, 0)
}

// B2: what no retry mends is said to be a mistake in the configuration.
func TestUnusableConfiguration(t *testing.T) {
	t.Parallel()
	direct := newDatabaseURL(t)
	pool := newPool(t, direct)
	if err := newStore(t, pool, postgres.Config{Schema: "pg_mine"}).Setup(t.Context()); !errors.Is(err, store.ErrConfiguration) {
		t.Errorf("set up in a schema whose name is the server's own: %v", err)
	}
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatalf("parse url: %v", err)
	}
	u.User = url.User("nobody_of_that_name")
	if err := newStore(t, newPool(t, u.String()), postgres.Config{}).Setup(t.Context()); !errors.Is(err, store.ErrConfiguration) {
		t.Errorf("set up as a role that does not exist: %v", err)
	}
	for _, timeout := range []time.Duration{(1 << 31) * time.Millisecond, time.Microsecond, -time.Second} {
		if _, err := postgres.New(pool, postgres.Config{SetupLockTimeout: timeout}); !errors.Is(err, store.ErrConfiguration) {
			t.Errorf("a lock timeout of %v: %v", timeout, err)
		}
	}
	// The longest one is one that the server takes.
	s := newStore(t, pool, postgres.Config{SetupLockTimeout: (1<<31 - 1) * time.Millisecond})
	if err := s.Setup(t.Context()); err != nil {
		t.Errorf("set up with the longest lock timeout: %v", err)
	}
}
