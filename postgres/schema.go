package postgres

// The states of a delivery. All below stateDead are unfinished: they hold back
// the later deliveries of their key.
const (
	stateReady     = 0 // due at its time
	stateParked    = 1 // blocked by its key, out of the way of claims
	stateHeld      = 2 // dead, and blocks its key
	stateDead      = 3 // dead
	stateCompleted = 4 // a record of the history
)

// schemaVersion is the version of the schema that this library knows.
const schemaVersion = 1

// oldestServer is the oldest version that works, as server_version_num has it.
const oldestServer = 140000

// migrations bring the schema from one version to the next, each in one
// transaction. A migration that has been released is never changed.
func migrations() []string {
	return []string{schemaV1}
}

const schemaV1 = `
CREATE TABLE {t:meta} (
	one      boolean PRIMARY KEY DEFAULT true CHECK (one),
	version  integer NOT NULL,
	oldest   integer NOT NULL,               -- the oldest version of the library's that can work with it
	identity text NOT NULL                   -- a random id of this database
);

-- seq of the events of one key grows in the order of their commits: who appends
-- holds an advisory lock on the key until the end of the transaction.
CREATE TABLE {t:events} (
	seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	created     bigint NOT NULL,             -- times are milliseconds since 1970 UTC
	id          text COLLATE "C" NOT NULL,
	type        text COLLATE "C" NOT NULL,
	source      text NOT NULL,
	key         text COLLATE "C",
	handlers    integer[] NOT NULL,          -- the refs of all handlers it ever had
	correlation text,
	causation   text,
	headers     text,
	payload     text,
	CONSTRAINT {n:events_id} UNIQUE (id)
);
CREATE INDEX {n:events_unheard} ON {t:events} (created) WHERE handlers = '{}';

-- A delivery is inserted and deleted; in between it is updated only when an
-- attempt fails or its key is blocked. Room is left on the pages for that.
CREATE TABLE {t:deliveries} (
	event    bigint NOT NULL,
	due      bigint NOT NULL,
	updated  bigint NOT NULL,
	handler  integer NOT NULL,
	gen      integer NOT NULL DEFAULT 0,     -- claims that ended
	attempts integer NOT NULL DEFAULT 0,
	lost     integer NOT NULL DEFAULT 0,
	lane     smallint NOT NULL,
	state    smallint NOT NULL DEFAULT 0,
	alone    boolean NOT NULL DEFAULT false,
	key      text COLLATE "C",
	error    text,
	CONSTRAINT {n:deliveries_pkey} PRIMARY KEY (event, handler)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2, vacuum_truncate = false);
CREATE INDEX {n:deliveries_ready} ON {t:deliveries} (handler, lane, due, event) WHERE state = 0;
CREATE INDEX {n:deliveries_open}  ON {t:deliveries} (handler, key, event) WHERE key IS NOT NULL AND state < 3;
CREATE INDEX {n:deliveries_dead}  ON {t:deliveries} (event, handler) WHERE state >= 2;
CREATE INDEX {n:deliveries_died}  ON {t:deliveries} (handler, updated, event) WHERE state = 3;

-- The table never looks tiny to the planner, which keeps plans that it made while a
-- queue was empty: it keeps the pages of these rows.
INSERT INTO {t:deliveries} (event, due, updated, handler, lane) SELECT n, 0, 0, 0, 0 FROM generate_series(-1000, -1) n;
DELETE FROM {t:deliveries};

-- grp joins the ids under which one handler was ever known.
CREATE TABLE {t:handlers} (
	ref      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	grp      integer,
	id       text COLLATE "C" NOT NULL,
	aliases  text[],
	types    text[],
	paused   boolean NOT NULL DEFAULT false,
	retired  boolean NOT NULL DEFAULT false,
	recorded bigint,                         -- NULL: never recorded, only known from deliveries
	CONSTRAINT {n:handlers_id} UNIQUE (id)
);

-- id is random and never used again: leases of a former owner match no other.
CREATE TABLE {t:owners} (
	id    bigint PRIMARY KEY,
	lease bigint NOT NULL,
	name  text NOT NULL
) WITH (fillfactor = 50);

-- A lane changes hands when somebody else wants it and nothing of its owner runs
-- there, so its row is seldom updated.
CREATE TABLE {t:lanes} (
	epoch   bigint NOT NULL DEFAULT 0,
	owner   bigint,
	handler integer NOT NULL,
	lane    smallint NOT NULL,
	CONSTRAINT {n:lanes_pkey} PRIMARY KEY (handler, lane)
) WITH (fillfactor = 50);

-- One row for each claim: what it took, and with which generation.
CREATE TABLE {t:claims} (
	owner    bigint NOT NULL,
	n        bigint NOT NULL,
	events   bigint[] NOT NULL,
	handlers integer[] NOT NULL,
	gens     integer[] NOT NULL,
	lanes    smallint[] NOT NULL,
	CONSTRAINT {n:claims_pkey} PRIMARY KEY (owner, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- events has one entry for each delivery that completed at that time.
CREATE TABLE {t:completions} (
	id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at     bigint NOT NULL,
	events bigint[] NOT NULL
);
CREATE INDEX {n:completions_at} ON {t:completions} (at, id);

-- How many handlers of an event with several of them the purge has accounted for,
-- and the last completion among them.
CREATE TABLE {t:accounts} (
	event bigint PRIMARY KEY,
	last  bigint NOT NULL,
	done  integer NOT NULL
);

CREATE TABLE {t:history} (
	event    bigint NOT NULL,
	at       bigint NOT NULL,
	due      bigint NOT NULL,
	handler  integer NOT NULL,
	attempts integer NOT NULL,
	lost     integer NOT NULL,
	error    text,
	CONSTRAINT {n:history_pkey} PRIMARY KEY (event, handler)
);
CREATE INDEX {n:history_at} ON {t:history} (at, event, handler);
`
