package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/postgres"
)

// makeTables makes the tables of the user. Nothing in effects is unique, so that an effect that happens twice is seen.
const makeTables = `
CREATE TABLE orders (id text PRIMARY KEY);
CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL);
CREATE TABLE counters (name text PRIMARY KEY, value integer NOT NULL);
INSERT INTO counters VALUES ('n', 0);`

// newShopURL makes a database with the user's tables and nothing else.
func newShopURL(t *testing.T) string {
	t.Helper()
	url := newDatabaseURL(t)
	administer(t, t.Context(), url, makeTables)
	return url
}

// openShop opens the database of a process.
func openShop(p fleettest.Program, pass func(point string)) (*fleettest.Shop, error) {
	c, err := pgxpool.ParseConfig(p.Database)
	if err != nil {
		return nil, err
	}
	c.MaxConns = 4
	c.ConnConfig.RuntimeParams["application_name"] = p.Name
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, err
	}
	s, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		pool.Close()
		return nil, err
	}
	postgres.Probe(s, pass)
	return &fleettest.Shop{
		Store:  s,
		Order:  addOrder,
		Effect: addEffect,
		Count: func(ctx context.Context) error {
			var n int
			tx := postgres.Tx(ctx)
			if err := tx.QueryRow(ctx, `SELECT value FROM counters WHERE name = 'n' FOR UPDATE`).Scan(&n); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE counters SET value = $1 WHERE name = 'n'`, n+1)
			return err
		},
		Begin: func(ctx context.Context) (fleettest.OwnTx, error) { return beginOwn(ctx, pool) },
		Gone:  isGone,
		Close: func() error {
			defer pool.Close()
			return s.Close()
		},
	}, nil
}

func addOrder(ctx context.Context, id string, again bool) error {
	text := `INSERT INTO orders (id) VALUES ($1)`
	if again {
		text += ` ON CONFLICT DO NOTHING`
	}
	_, err := postgres.Tx(ctx).Exec(ctx, text, id)
	return err
}

func addEffect(ctx context.Context, id string) error {
	_, err := postgres.Tx(ctx).Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, id)
	return err
}

func beginOwn(ctx context.Context, pool *pgxpool.Pool) (fleettest.OwnTx, error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return fleettest.OwnTx{}, err
	}
	return fleettest.OwnTx{
		Tx: postgres.Join(tx),
		Order: func(ctx context.Context, id string) error {
			_, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES ($1)`, id)
			return err
		},
		Commit:   tx.Commit,
		Rollback: tx.Rollback,
	}, nil
}

// isGone tells an error of the driver's after which the connection is of no use: everything but what the server itself
// has said, unless that is that it goes down.
func isGone(err error) bool {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(said.Code, "57P")
	}
	return !errors.Is(err, pgx.ErrNoRows)
}
