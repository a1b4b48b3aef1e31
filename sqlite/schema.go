package sqlite

import "strings"

// The states of a delivery. All below stateDead are unfinished: they hold back
// the later deliveries of their key.
const (
	stateReady  = 0 // due at its time
	stateParked = 1 // blocked by its key, out of the way of claims
	stateHeld   = 2 // dead, and blocks its key
	stateDead   = 3 // dead
)

// schemaVersion is the version of the schema that this library knows.
const schemaVersion = 1

// migrations bring the schema from one version to the next, each in one
// transaction. A migration that has been released is never changed.
func migrations() []string {
	return []string{schemaV1}
}

// named puts the prefix into SQL text.
func named(prefix, text string) string { return strings.ReplaceAll(text, "{p}", prefix) }

const schemaV1 = `
CREATE TABLE {p}meta (
	key   TEXT PRIMARY KEY NOT NULL,
	value NOT NULL
) WITHOUT ROWID;

-- seq is the position in commit order, as there is one writer at a time.
CREATE TABLE {p}events (
	seq         INTEGER PRIMARY KEY,
	id          TEXT NOT NULL UNIQUE,
	type        TEXT NOT NULL,
	source      TEXT NOT NULL,
	key         TEXT,
	created     INTEGER NOT NULL,
	handlers    TEXT NOT NULL,             -- JSON array of the refs of all handlers it ever had
	total       INTEGER NOT NULL,          -- how many
	correlation TEXT,
	causation   TEXT,
	headers     BLOB,
	payload     BLOB
);
CREATE INDEX {p}events_unheard ON {p}events (created) WHERE total = 0;

CREATE TABLE {p}deliveries (
	event    INTEGER NOT NULL,
	handler  INTEGER NOT NULL,
	lane     INTEGER NOT NULL,
	state    INTEGER NOT NULL DEFAULT 0,
	due      INTEGER NOT NULL,
	key      TEXT,
	gen      INTEGER NOT NULL DEFAULT 0,   -- claims that ended
	attempts INTEGER NOT NULL DEFAULT 0,
	lost     INTEGER NOT NULL DEFAULT 0,
	alone    INTEGER NOT NULL DEFAULT 0,
	updated  INTEGER NOT NULL,
	error    TEXT,
	PRIMARY KEY (event, handler)
) WITHOUT ROWID;
CREATE INDEX {p}deliveries_ready ON {p}deliveries (handler, lane, due, event) WHERE state = 0;
CREATE INDEX {p}deliveries_open  ON {p}deliveries (handler, key, event) WHERE key IS NOT NULL AND state < 3;
CREATE INDEX {p}deliveries_dead  ON {p}deliveries (event, handler) WHERE state >= 2;
CREATE INDEX {p}deliveries_died  ON {p}deliveries (updated, event, handler) WHERE state = 3;

-- grp joins the ids under which one handler was ever known.
CREATE TABLE {p}handlers (
	ref      INTEGER PRIMARY KEY AUTOINCREMENT,
	id       TEXT NOT NULL UNIQUE,
	grp      INTEGER,
	aliases  TEXT,                         -- JSON array of ids
	types    TEXT,                         -- JSON array
	paused   INTEGER NOT NULL DEFAULT 0,
	retired  INTEGER NOT NULL DEFAULT 0,
	recorded INTEGER                       -- NULL: never recorded, only known from deliveries
);
CREATE INDEX {p}handlers_paused ON {p}handlers (ref) WHERE paused = 1;
CREATE INDEX {p}handlers_grp    ON {p}handlers (grp) WHERE grp IS NOT NULL;

-- id is random and never used again: leases of a former owner match no other.
CREATE TABLE {p}owners (
	id    INTEGER PRIMARY KEY,
	name  TEXT NOT NULL,
	lease INTEGER NOT NULL
);
CREATE INDEX {p}owners_lease ON {p}owners (lease);

CREATE TABLE {p}lanes (
	handler INTEGER NOT NULL,
	lane    INTEGER NOT NULL,
	epoch   INTEGER NOT NULL,
	owner   INTEGER NOT NULL,              -- 0: free
	PRIMARY KEY (handler, lane)
) WITHOUT ROWID;

-- list is a JSON array of event, handler, gen, event, handler, gen, ...
CREATE TABLE {p}claims (
	owner INTEGER NOT NULL,
	n     INTEGER NOT NULL,
	list  TEXT NOT NULL,
	PRIMARY KEY (owner, n)
) WITHOUT ROWID;

-- list is a JSON array of events, one entry for each delivery that completed.
CREATE TABLE {p}completions (
	id   INTEGER PRIMARY KEY,
	at   INTEGER NOT NULL,
	list TEXT NOT NULL
);
CREATE INDEX {p}completions_at ON {p}completions (at, id);

-- How many handlers of an event with several of them the purge has accounted for,
-- and the last completion among them.
CREATE TABLE {p}accounts (
	event INTEGER PRIMARY KEY,
	done  INTEGER NOT NULL,
	last  INTEGER NOT NULL
);

CREATE TABLE {p}history (
	event    INTEGER NOT NULL,
	handler  INTEGER NOT NULL,
	at       INTEGER NOT NULL,
	due      INTEGER NOT NULL,
	attempts INTEGER NOT NULL,
	lost     INTEGER NOT NULL,
	error    TEXT,
	PRIMARY KEY (event, handler)
) WITHOUT ROWID;
CREATE INDEX {p}history_at ON {p}history (at, event, handler);
`
