package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Wake calls signal when another process has committed something to the file;
// see [store.Waker]. It looks every [Config].WakeInterval at a counter in
// memory that the processes share, on a connection of its own. Commits of this
// instance are left out as far as they can be told apart; those of callers on
// [Store.DB] or on other handles count as foreign. When the store is closed, it
// returns [store.ErrClosed].
func (s *Store) Wake(ctx context.Context, signal func()) (err error) {
	const op = "watch database"
	if s.closed.Load() {
		return store.NewError(op, store.ErrClosed, "", nil)
	}
	db, err := s.open(false)
	if err != nil {
		return configurationError(op, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return s.stopped(ctx, op, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	w := &watch{s: s, conn: conn}
	if _, err := w.changed(ctx); err != nil {
		return s.stopped(ctx, op, err)
	}
	ticker := time.NewTicker(s.cfg.WakeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.gone:
			return store.NewError(op, store.ErrClosed, "", nil)
		case <-ticker.C:
		}
		changed, err := w.changed(ctx)
		if err != nil {
			return s.stopped(ctx, op, err)
		}
		if changed {
			signal()
		}
	}
}

// stopped is nil when the context has ended: that is how watching ends.
func (s *Store) stopped(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // See above.
	}
	return s.translate(op, err)
}

// watch sees whether somebody else has committed.
type watch struct {
	s    *Store
	conn *sql.Conn
	// version is SQLite's counter of changes by other connections, commits how
	// many of them were our own, foreign how many changes by others these came
	// upon, and sequence the last event that was seen.
	version, commits, foreign, sequence int64
}

func (w *watch) changed(ctx context.Context) (bool, error) {
	commits, foreign := w.s.commits.Load(), w.s.foreign.Load()
	var version int64
	if err := w.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil {
		return false, err
	}
	if version == w.version {
		return false, nil
	}
	own := commits != w.commits || w.s.commits.Load() != commits
	came := foreign != w.foreign
	w.version, w.commits, w.foreign = version, commits, foreign
	if !own || came {
		return true, nil
	}
	// Ours was the last commit that we know of. Later ones by others are told by
	// events that this instance did not append.
	appended := w.s.appended.Load()
	var sequence int64
	err := w.conn.QueryRowContext(ctx, w.s.sql.lastSequence).Scan(&sequence)
	if err != nil {
		if code, ok := primaryCode(err); ok && code == codeError {
			return true, nil // Not set up yet.
		}
		return false, err
	}
	news := sequence > max(w.sequence, appended)
	w.sequence = sequence
	return news, nil
}
