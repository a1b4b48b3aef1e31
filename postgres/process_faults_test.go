package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/internal/pgserver"
)

// How much the database breaks while a fleet is killed.
const (
	terminations = 50
	restarts     = 10
	// terminateEvery and restartEvery are in deaths of processes.
	terminateEvery, restartEvery = 3, 16
	// crashAfter is after how many restarts the server crashes, once.
	crashAfter = 5
)

// breaker breaks the database under a fleet.
type breaker struct {
	t      *testing.T
	fleet  *fleettest.Fleet
	server *pgserver.Server
	url    string
	random *rand.Rand

	terminated, restarted, crashed int
}

// run breaks something after so many deaths each, until the context ends.
func (b *breaker) run(ctx context.Context) {
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-b.fleet.Deaths():
		}
		if n%terminateEvery == 0 && b.terminated < terminations {
			b.terminate(ctx)
		}
		if n%restartEvery != 0 {
			continue
		}
		switch {
		case b.crashed == 0 && b.restarted == crashAfter:
			b.fleet.Say(fleettest.SaidFault, "crash of the server")
			b.note(b.server.Kill(ctx), &b.crashed)
			b.note(b.server.Restart(ctx), nil)
			b.fleet.Say(fleettest.SaidMended, "")
		case b.restarted < restarts:
			b.fleet.Say(fleettest.SaidFault, "restart of the server")
			b.note(b.server.Restart(ctx), &b.restarted)
			b.fleet.Say(fleettest.SaidMended, "")
		}
	}
}

func (b *breaker) note(err error, count *int) {
	switch {
	case err != nil:
		b.t.Errorf("break the database: %v", err)
		b.fleet.End()
	case count != nil:
		*count++
	}
}

// terminate ends one of the fleet's connections: every other time one that is at work, if there is one.
func (b *breaker) terminate(ctx context.Context) {
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		b.note(err, nil)
		return
	}
	defer func() { b.note(conn.Close(context.WithoutCancel(ctx)), nil) }()
	list := `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	var pids []int32
	for _, text := range []string{list + ` AND state <> 'idle'`, list} {
		if b.terminated%2 == 1 && text != list {
			continue
		}
		if len(pids) == 0 {
			rows, _ := conn.Query(ctx, text) // CollectRows returns its error.
			if pids, err = pgx.CollectRows(rows, pgx.RowTo[int32]); err != nil {
				b.note(err, nil)
				return
			}
		}
	}
	if len(pids) == 0 {
		return // Another death will follow.
	}
	b.fleet.Say(fleettest.SaidFault, "end of a connection")
	var done bool
	err = conn.QueryRow(ctx, `SELECT pg_terminate_backend($1)`, pids[b.random.IntN(len(pids))]).Scan(&done)
	if err != nil && !errors.Is(err, context.Canceled) {
		b.note(err, nil)
	} else if done {
		b.terminated++
	}
}

// check reports an error unless the database was broken as often as it was to be.
func (b *breaker) check() {
	b.t.Helper()
	b.t.Logf("%d connections terminated, %d restarts of the server, %d crash", b.terminated, b.restarted, b.crashed)
	if b.terminated != terminations || b.restarted != restarts || b.crashed != 1 {
		b.t.Errorf("want %d terminated connections, %d restarts, 1 crash", terminations, restarts)
	}
}
