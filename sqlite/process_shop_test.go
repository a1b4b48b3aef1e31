package sqlite_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/sqlite"
)

// makeTables makes the tables of the user. Nothing in effects is unique, so
// that an effect that happens twice is seen.
const makeTables = `
CREATE TABLE orders (id TEXT PRIMARY KEY NOT NULL);
CREATE TABLE effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL);
INSERT INTO counters VALUES ('n', 0);`

// prepare makes a file with the user's tables and nothing else.
func prepare(t *testing.T, path string) {
	t.Helper()
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if _, err := s.DB().ExecContext(t.Context(), makeTables); err != nil {
		t.Fatalf("make the tables of the user: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// openShop opens the file of a process.
func openShop(p fleettest.Program, pass func(point string)) (*fleettest.Shop, error) {
	// A counter takes what everybody gets. The transactions of the others take
	// long where the race detector watches them on a busy machine.
	c := sqlite.Config{BusyTimeout: time.Minute}
	if p.Role == "count" {
		c = sqlite.Config{}
	}
	s, err := sqlite.OpenConfig(p.Database, c)
	if err != nil {
		return nil, err
	}
	sqlite.Probe(s, pass)
	return &fleettest.Shop{
		Store: s,
		Order: func(ctx context.Context, id string, again bool) error {
			text := `INSERT INTO orders (id) VALUES (?)`
			if again {
				text += ` ON CONFLICT DO NOTHING`
			}
			_, err := sqlite.Tx(ctx).ExecContext(ctx, text, id)
			return err
		},
		Effect: func(ctx context.Context, id string) error {
			_, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO effects (id) VALUES (?)`, id)
			return err
		},
		Count: func(ctx context.Context) error {
			var n int
			tx := sqlite.Tx(ctx)
			if err := tx.QueryRowContext(ctx, `SELECT value FROM counters WHERE name = 'n'`).Scan(&n); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE counters SET value = ? WHERE name = 'n'`, n+1)
			return err
		},
		Begin: func(ctx context.Context) (fleettest.OwnTx, error) { return beginOwn(ctx, s.DB()) },
		Close: s.Close,
	}, nil
}

func beginOwn(ctx context.Context, db *sql.DB) (fleettest.OwnTx, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fleettest.OwnTx{}, err
	}
	return fleettest.OwnTx{
		Tx: sqlite.Join(tx),
		Order: func(ctx context.Context, id string) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, id)
			return err
		},
		Commit:   func(context.Context) error { return tx.Commit() },
		Rollback: func(context.Context) error { return tx.Rollback() },
	}, nil
}
