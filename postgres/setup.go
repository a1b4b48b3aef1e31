package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/store"
)

// fitting is the condition that a schema is one that this library can work with: a
// later version of the library may have added to it what this one can do without.
const fitting = `version >= 1 AND oldest <= 1`

type metaSQL struct {
	hasMeta, version, fits, identify, addMeta, bump, setupLock, encoding, hasSchema, createSchema string
}

const addMeta = `INSERT INTO {t:meta} (version, oldest, identity) VALUES ($1, 1, $2)`

func newMetaSQL(c Config) metaSQL {
	return metaSQL{
		// Not by to_regclass, which may not see what was committed while the
		// transaction waited.
		hasMeta: `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = $2)`,
		version: c.named(`SELECT version, oldest FROM {t:meta}`),
		// It fails when the schema is not one that this library can work with.
		fits:         c.named(`SELECT 1 / (` + fitting + `)::integer FROM {t:meta}`),
		identify:     c.named(`SELECT identity FROM {t:meta}`),
		addMeta:      c.named(addMeta),
		bump:         c.named(`UPDATE {t:meta} SET version = $1`),
		setupLock:    `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`,
		encoding:     `SELECT current_setting('server_encoding'), current_setting('server_version_num')::integer`,
		hasSchema:    `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)`,
		createSchema: `CREATE SCHEMA IF NOT EXISTS ` + quote(c.Schema),
	}
}

// setupKey names the lock of a setup, which the stores of one schema share: one of
// them may have to create it.
func (c Config) setupKey() string { return "relaybus " + quote(c.Schema) }

// meta is the schema and the name of the meta table.
func (c Config) meta() []any { return []any{c.Schema, c.Prefix + "meta"} }

// DDL returns the statements with which Setup would set up an empty database,
// for an administrator who runs them instead. They are to be run in one
// transaction.
func (s *Store) DDL() (string, error) {
	id, err := newIdentity()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "BEGIN;\n%s;\n", s.sql.createSchema)
	for _, step := range migrations() {
		b.WriteString(s.cfg.named(step))
	}
	// Before the names are put in, which may have anything in them.
	row := strings.NewReplacer("$1", strconv.Itoa(schemaVersion), "$2", "'"+id+"'").Replace(addMeta)
	fmt.Fprintf(&b, "%s;\nCOMMIT;\n", s.cfg.named(row))
	return b.String(), nil
}

func newIdentity() (string, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return "", store.NewError("make database id", store.ErrUnavailable, "", err)
	}
	return hex.EncodeToString(id), nil
}

// Setup creates or upgrades the store's tables, each version in one transaction
// under an advisory lock that ends with it. Many processes may call it at once,
// and one that is killed leaves nothing to repair. It waits for locks up to
// [Config].SetupLockTimeout, and then fails with [store.ErrConflict]. A database
// that a newer version has set up is [store.ErrSchemaTooNew], and stays as it is.
// After the tables were dropped, Setup makes a store that is in use fit for the new
// ones; what it ran from the old ones is lost.
func (s *Store) Setup(ctx context.Context) error {
	const op = "set up store"
	steps := migrations()
	for {
		has, err := s.schemaOf(ctx, op)
		switch {
		case err != nil:
			return err
		case has.oldest > len(steps):
			return tooNew(op, has.version, len(steps))
		case has.version >= len(steps):
			return s.refresh(ctx, op)
		}
		if err := s.migrate(ctx, op, steps); err != nil {
			return err
		}
	}
}

// schemaOf returns the version of the schema; 0 is a database without one.
func (s *Store) schemaOf(ctx context.Context, op string) (has versions, err error) {
	err = s.retry(ctx, op, func(ctx context.Context) error {
		conn, err := s.acquire(ctx, op)
		if err != nil {
			return err
		}
		x := &session{querier: native{conn}, s: s}
		has, err = x.schemaVersion(ctx)
		s.release(ctx, conn, err)
		return translate(op, err)
	})
	return has, err
}

// versions are the version of a schema, and the oldest version of the library's
// that can work with it.
type versions struct{ version, oldest int }

func (x *session) schemaVersion(ctx context.Context) (v versions, err error) {
	var has bool
	if _, err := x.row(ctx, x.s.sql.hasMeta, []any{&has}, x.s.cfg.meta()...); err != nil || !has {
		return v, err
	}
	_, err = x.row(ctx, x.s.sql.version, []any{&v.version, &v.oldest})
	return v, err
}

// migrate brings the schema one version further, unless somebody else just did.
func (s *Store) migrate(ctx context.Context, op string, steps []string) error {
	return s.retry(ctx, op, func(ctx context.Context) error {
		conn, err := s.acquire(ctx, op)
		if err != nil {
			return err
		}
		failed := s.migrateOn(ctx, op, conn, steps)
		if failed != nil && !errors.Is(failed, store.ErrOutcomeUnknown) {
			rollback(ctx, conn)
		}
		s.release(ctx, conn, failed)
		if stateOf(failed) == codeLockNotAvailable {
			// Not to be tried again: it has waited as long as it was told.
			return &store.Error{
				Op: op, Class: store.ErrConflict,
				Detail: "another Setup or a transaction on the tables holds a lock for longer than SetupLockTimeout",
			}
		}
		return translate(op, failed)
	})
}

func (s *Store) migrateOn(ctx context.Context, op string, conn *pgxpool.Conn, steps []string) error {
	limit := strconv.FormatInt(s.cfg.SetupLockTimeout.Milliseconds(), 10)
	begin := beginWriting + "; set local lock_timeout = " + limit + "; set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0" + unlimited
	if _, err := conn.Exec(ctx, begin); err != nil {
		return err
	}
	x := &session{querier: native{conn}, s: s}
	if _, err := x.exec(ctx, s.sql.setupLock, s.cfg.setupKey()); err != nil {
		return err
	}
	has, err := x.schemaVersion(ctx)
	version := has.version
	if err != nil || version >= len(steps) {
		return errors.Join(err, commit(ctx, op, conn))
	}
	if version == 0 {
		if err := x.checkServer(ctx); err != nil {
			return err
		}
		if err := x.createSchema(ctx); err != nil {
			return unprivileged("create schema", err)
		}
	}
	if _, err := x.exec(ctx, s.cfg.named(steps[version])); err != nil {
		return unprivileged("migrate to version "+strconv.Itoa(version+1), err)
	}
	s.crash("migrating")
	if version > 0 {
		_, err = x.exec(ctx, s.sql.bump, version+1)
	} else {
		var id string
		if id, err = newIdentity(); err == nil {
			_, err = x.exec(ctx, s.sql.addMeta, version+1, id)
		}
	}
	if err != nil {
		return err
	}
	if err := ended(ctx, op); err != nil {
		return err
	}
	return commit(ctx, op, conn)
}

// createSchema leaves a schema alone that exists: a role that may create tables in
// it may be allowed nothing else.
func (x *session) createSchema(ctx context.Context) error {
	var has bool
	if _, err := x.row(ctx, x.s.sql.hasSchema, []any{&has}, x.s.cfg.Schema); err != nil || has {
		return err
	}
	_, err := x.exec(ctx, x.s.sql.createSchema)
	return err
}

// unprivileged wraps the error of a step of the setup, and says what to do when
// the role is not allowed to take it.
func unprivileged(step string, err error) error {
	if stateOf(err) == codePrivilege {
		step += ", which this role may not do; let an administrator run what DDL prints"
	}
	return fmt.Errorf("%s: %w", step, err)
}

// checkServer refuses servers on which the store would not keep its promises.
func (x *session) checkServer(ctx context.Context) error {
	var encoding string
	var version int
	if _, err := x.row(ctx, x.s.sql.encoding, []any{&encoding, &version}); err != nil {
		return err
	}
	switch {
	case version < oldestServer:
		return store.NewError("check server", store.ErrConfiguration,
			fmt.Sprintf("PostgreSQL %d is too old, use 14 or later", version/10000), nil)
	case encoding != "UTF8":
		return store.NewError("check server", store.ErrConfiguration,
			"the encoding of the database is "+encoding+", and must be UTF8", nil)
	}
	return nil
}

// current checks that the schema is the one that this version of the library
// knows: another process may upgrade it at any time.
func (x *session) current(ctx context.Context) error {
	var v versions
	_, err := x.row(ctx, x.s.sql.version, []any{&v.version, &v.oldest})
	if err != nil {
		return err
	}
	return v.check()
}

func (v versions) check() error {
	switch {
	case v.version >= schemaVersion && v.oldest <= schemaVersion:
		return nil
	case v.oldest > schemaVersion:
		return tooNew("check schema", v.version, schemaVersion)
	default:
		return &store.Error{
			Op: "check schema", Class: store.ErrConfiguration, Also: store.ErrNotSetUp, Detail: "call Setup before anything else",
		}
	}
}

func tooNew(op string, has, knows int) error {
	return &store.Error{
		Op: op, Class: store.ErrConfiguration, Also: store.ErrSchemaTooNew,
		Detail: fmt.Sprintf("the database has version %d, and this library knows version %d; upgrade the library", has, knows),
	}
}

// refresh learns what database this is. The tables may have been dropped and set up
// again while the process runs: then what is remembered of the old ones is not true
// of these.
func (s *Store) refresh(ctx context.Context, op string) error {
	id, err := s.readIdentity(ctx, op)
	if err != nil {
		return err
	}
	before := s.identity.Swap(&id)
	if before == nil || *before == id {
		return nil
	}
	s.handlers.forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.workers)
	return nil
}

// forget drops all that is known.
func (d *directory) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.refs)
	clear(d.ids)
	clear(d.lanes)
	clear(d.sets)
}

func (s *Store) learnIdentity(ctx context.Context, op string) error {
	if s.identity.Load() != nil {
		return nil
	}
	id, err := s.readIdentity(ctx, op)
	if err == nil {
		s.identity.Store(&id)
	}
	return err
}

func (s *Store) readIdentity(ctx context.Context, op string) (id string, err error) {
	err = s.retry(ctx, op, func(ctx context.Context) error {
		conn, err := s.acquire(ctx, op)
		if err != nil {
			return err
		}
		x := &session{querier: native{conn}, s: s}
		var found, has bool
		if _, err = x.row(ctx, s.sql.hasMeta, []any{&has}, s.cfg.meta()...); err == nil && has {
			found, err = x.row(ctx, s.sql.identify, []any{&id})
		}
		s.release(ctx, conn, err)
		switch {
		case err != nil:
			return translate(op, err)
		case !found:
			return translate(op, versions{}.check())
		}
		return nil
	})
	return id, err
}

// databaseID returns the random id that Setup gave the database.
func (s *Store) databaseID(ctx context.Context, op string) (string, error) {
	if err := s.learnIdentity(ctx, op); err != nil {
		return "", err
	}
	return *s.identity.Load(), nil
}
