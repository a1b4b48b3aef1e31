package sqlite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/relaybus-go/relaybus/store"
)

// Rows of the meta table.
const (
	metaSchema   = "schema"   // the version
	metaIdentity = "identity" // a random id of the database
	metaSequence = "sequence" // no sequence up to here is given out again
)

// Setup creates or upgrades the store's tables, each version in one
// transaction. Many processes may call it at once, and one that is killed
// leaves nothing to repair. A database that a newer version has set up is
// [store.ErrSchemaTooNew], and stays as it is.
func (s *Store) Setup(ctx context.Context) error {
	const op = "set up store"
	steps := migrations()
	if done, err := s.isSetUp(ctx, op, len(steps)); err != nil || done {
		return err
	}
	for {
		var version int
		t, err := s.begin(ctx, op)
		if err != nil {
			return err
		}
		version, err = s.migrate(still(ctx), t.session, steps)
		if err != nil || version < 0 {
			t.rollback()
			return s.translate(op, err)
		}
		if err := ended(ctx, op); err != nil {
			t.rollback()
			return err
		}
		if err := t.commit(op); err != nil {
			return err
		}
	}
}

// isSetUp looks without the write lock, which a database that is set up does not
// need, and one that is too new must not see.
func (s *Store) isSetUp(ctx context.Context, op string, version int) (bool, error) {
	if err := s.usable(ctx, op); err != nil {
		return false, err
	}
	tx, done, err := s.beginRead(ctx, op)
	if err != nil {
		return false, err
	}
	defer done()
	x := &session{s: s, tx: tx}
	has, err := s.schemaOf(ctx, x)
	if err != nil {
		if late := ended(ctx, op); late != nil {
			return false, late
		}
		return false, s.translate(op, err)
	}
	if has > version {
		return false, tooNew(op, has, version)
	}
	if has < version {
		return false, nil
	}
	return true, s.translate(op, s.learnIdentity(ctx, x))
}

// migrate brings the schema one version further. The version is -1 when there
// was nothing to do.
func (s *Store) migrate(ctx context.Context, x *session, steps []string) (int, error) {
	version, err := s.schemaOf(ctx, x)
	if err != nil {
		return 0, err
	}
	if version > len(steps) {
		return 0, tooNew("set up store", version, len(steps))
	}
	if version == len(steps) {
		return -1, s.learnIdentity(ctx, x)
	}
	if _, err := x.exec(ctx, named(s.cfg.Prefix, steps[version])); err != nil {
		return 0, fmt.Errorf("migrate to version %d: %w", version+1, err)
	}
	s.crash("migrating")
	if version == 0 {
		id := make([]byte, 16)
		if _, err := rand.Read(id); err != nil {
			return 0, fmt.Errorf("make database id: %w", err)
		}
		if _, err := x.exec(ctx, s.sql.putMeta, metaIdentity, hex.EncodeToString(id)); err != nil {
			return 0, err
		}
		if _, err := x.exec(ctx, s.sql.putMeta, metaSequence, 0); err != nil {
			return 0, err
		}
	}
	_, err = x.exec(ctx, s.sql.putMeta, metaSchema, version+1)
	return version + 1, err
}

// schemaOf returns the version of the schema; 0 is a database without one.
func (s *Store) schemaOf(ctx context.Context, x *session) (int, error) {
	var one, version int
	found, err := x.row(ctx, s.sql.hasMeta, []any{&one}, s.cfg.Prefix+"meta")
	if err != nil || !found {
		return 0, err
	}
	_, err = x.row(ctx, s.sql.getMeta, []any{&version}, metaSchema)
	return version, err
}

// current checks that the schema is the one that this version of the library
// knows, in every transaction: another process may upgrade it at any time.
func (s *Store) current(ctx context.Context, x *session) error {
	var version int
	found, err := x.row(ctx, s.sql.getMeta, []any{&version}, metaSchema)
	if err == nil && found && version == schemaVersion {
		return nil
	}
	if err != nil {
		if code, ok := primaryCode(err); !ok || code != codeError {
			return err
		}
		var one int
		found, missing := x.row(ctx, s.sql.hasMeta, []any{&one}, s.cfg.Prefix+"meta")
		if missing != nil || found {
			return errors.Join(err, missing)
		}
	}
	if version > schemaVersion {
		return tooNew("check schema", version, schemaVersion)
	}
	return &store.Error{
		Op: "check schema", Class: store.ErrConfiguration, Also: store.ErrNotSetUp,
		Detail: "call Setup before anything else",
	}
}

func tooNew(op string, has, knows int) error {
	return &store.Error{
		Op: op, Class: store.ErrConfiguration, Also: store.ErrSchemaTooNew,
		Detail: fmt.Sprintf("the database has version %d, and this library knows version %d; upgrade the library", has, knows),
	}
}

func (s *Store) learnIdentity(ctx context.Context, x *session) error {
	if s.identity.Load() != nil {
		return nil
	}
	var id string
	if _, err := x.row(ctx, s.sql.getMeta, []any{&id}, metaIdentity); err != nil {
		return err
	}
	s.identity.Store(&id)
	return nil
}
