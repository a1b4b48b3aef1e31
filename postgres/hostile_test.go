package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/postgres"
)

// readOnlyFirst makes the first connections read-only by default.
func readOnlyFirst(mu *sync.Mutex, left *int) func(ctx context.Context, conn *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		mu.Lock()
		first := *left > 0
		if first {
			*left--
		}
		mu.Unlock()
		if !first {
			return nil
		}
		_, err := conn.Exec(ctx, `SET default_transaction_read_only = on`)
		return err
	}
}

// F21: whatever the defaults of the database are, events are published, keep the order of their key, and are handled.
func TestHostileDefaults(t *testing.T) {
	t.Parallel()
	settings := []string{
		"default_transaction_isolation = 'serializable'",
		"default_transaction_isolation = 'repeatable read'",
		"default_transaction_read_only = on",
		"default_transaction_deferrable = on",
		"synchronous_commit = off",
		"lock_timeout = '10ms'",
		"statement_timeout = '50ms'",
		"idle_in_transaction_session_timeout = '50ms'",
		`search_path = odd, "$user"`,
		"plan_cache_mode = force_generic_plan",
		"enable_indexscan = off",
		"standard_conforming_strings = off",
		"datestyle = 'German'",
		"timezone = 'Asia/Kathmandu'",
		"bytea_output = 'escape'",
	}
	for _, setting := range settings {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			testDefaults(t, setting)
		})
	}
	t.Run("all of them", func(t *testing.T) {
		t.Parallel()
		testDefaults(t, settings...)
	})
}

func testDefaults(t *testing.T, settings ...string) {
	t.Helper()
	url := newShopURL(t)
	plain := newPool(t, url, func(c *pgxpool.Config) {
		maps.Copy(c.ConnConfig.RuntimeParams, map[string]string{
			"search_path": "public", "default_transaction_read_only": "off", "statement_timeout": "0", "lock_timeout": "0",
		})
	})
	var alter strings.Builder
	for _, setting := range settings {
		fmt.Fprintf(&alter, `EXECUTE 'ALTER DATABASE ' || quote_ident(current_database()) || $s$ SET %s$s$;`, setting)
	}
	administer(t, t.Context(), url, `CREATE SCHEMA odd; DO $do$ BEGIN `+alter.String()+` END $do$`)
	l, d := &line{t: t, direct: plain}, newDiary()
	l.store = newStore(t, newPool(t, url, func(c *pgxpool.Config) { c.MaxConns = 10 }), postgres.Config{})
	var mu sync.Mutex
	var handled []int64
	bus := l.start(d, fleettest.OrderPlaced.Handle("plain", func(_ context.Context, e *relaybus.Event[fleettest.OrderOf]) error {
		d.executed(e.Attempt)
		mu.Lock()
		defer mu.Unlock()
		handled = append(handled, e.Sequence)
		if e.ID == "fails-0" && e.Attempt == 1 {
			return errors.New("the first attempt fails")
		}
		return nil
	}))

	const writers, each = 8, 6
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				err := bus.Transaction(t.Context(), func(ctx context.Context) error {
					id := fmt.Sprintf("%d-%d", w, i)
					if w == 0 && i == 0 {
						id = "fails-0"
					}
					return bus.Publish(ctx, placed(id))
				})
				if err != nil {
					t.Errorf("L1: publish: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	d.awaitThat(t, func(said []string) bool {
		return len(said)-times(said, fleettest.SaidReleased) >= writers*each+1
	})
	l.settled(writers * each)
	mu.Lock()
	defer mu.Unlock()
	if first := slices.Compact(handled); !slices.IsSorted(first) || len(first) != writers*each {
		t.Errorf("I4: the sequences came as %v", handled)
	}
	for _, err := range d.errors() {
		t.Errorf("L1: %v", err)
	}
}

func times(said []string, what string) int {
	return len(slices.DeleteFunc(slices.Clone(said), func(one string) bool { return one != what }))
}

// F21: in a transaction of the user's own, at whatever isolation level, an event is published, or the user gets an error
// that says that a conflict is to be retried; the events of a key are handled in the order of their sequences, which is
// that of the commits.
func TestHostileTransactionsOfTheUser(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, locks := range []string{"0", "10ms"} {
			t.Run(string(level)+" lock_timeout "+locks, func(t *testing.T) {
				t.Parallel()
				url := newShopURL(t)
				pool := newPool(t, url, func(c *pgxpool.Config) {
					c.MaxConns = 10
					c.ConnConfig.RuntimeParams["lock_timeout"] = locks
				})
				l, d := &line{t: t, direct: newPool(t, url), store: newStore(t, pool, postgres.Config{Logger: slog.New(slog.DiscardHandler)})}, newDiary()
				bus := l.start(d, handlesAll(d))
				const writers, each = 8, 5
				var group sync.WaitGroup
				for w := range writers {
					group.Go(func() {
						for i := range each {
							id := fmt.Sprintf("%d-%d", w, i)
							for tries := 1; ; tries++ {
								err := joinAndPublish(t.Context(), pool, bus, level, id)
								if err == nil {
									break
								}
								if !isConflict(err) || tries == 1000 {
									t.Errorf("publish %s, try %d: %v", id, tries, err)
									return
								}
							}
						}
					})
				}
				group.Wait()
				if t.Failed() {
					return
				}
				d.await(t, writers*each)
				l.settled(writers * each)
				// The rows were numbered under a lock of the user's own, in the order of the commits.
				var wrong int
				err := l.direct.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT seq, lag(seq) OVER (ORDER BY n) AS before
					FROM effects f JOIN relaybus_events e ON e.id = f.id) s WHERE seq < before`).Scan(&wrong)
				if err != nil || wrong != 0 {
					t.Errorf("I4: %d events have a lower sequence than one that was committed before, %v", wrong, err)
				}
			})
		}
	}
}

// joinAndPublish publishes in a transaction of the driver's own, and notes the order in which the commits will come,
// which the lock on the events' key gives.
func joinAndPublish(ctx context.Context, pool *pgxpool.Pool, bus *relaybus.Bus, level pgx.TxIsoLevel, id string) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
		if err := bus.PublishTx(ctx, postgres.Join(tx), placed(id)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, id)
		return err
	})
}

func isConflict(err error) bool {
	said, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, relaybus.ErrConflict) || ok && strings.HasPrefix(said.Code, "40")
}
