package postgres_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/postgres"
)

func fleetPoints() fleettest.Points {
	return fleettest.Points{
		Setup:     []string{"migrating"},
		Publisher: []string{fleettest.PointRow, "committing", "committed"},
		Worker: []string{
			"reaped owners", "recording a claim", "recorded a claim",
			fleettest.PointHandler, fleettest.PointInTx, fleettest.PointComplete, fleettest.PointCompleted,
			"settling", "settled", fleettest.PointRenewed, fleettest.PointRelinquish,
		},
		Seldom:  []string{"reaped owners", fleettest.PointRenewed, fleettest.PointRelinquish},
		Leaving: fleettest.PointRelinquish,
	}
}

// F22 F25 I1–I6: four workers and two publishers on one database are killed two hundred times, at points in the store
// and in the code of the user, and at any moment, while connections are terminated and the server is restarted, and
// crashes once. Nothing is lost, invented, doubled or reordered.
func TestProcessSoak(t *testing.T) {
	t.Parallel()
	fleettest.Soak(t, func(seed uint64) { processRound(t, seed) })
}

func processRound(t *testing.T, seed uint64) {
	t.Helper()
	server, err := pgserver.Start(t.Context(), pgserver.Options{})
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	}()
	url := server.URL("postgres")
	administer(t, t.Context(), url, makeTables)
	f := fleettest.NewFleet(t, url, fleetPoints(), seed)
	f.Faults = true
	defer f.Limit()()

	f.KillInSetup()
	b := &breaker{t: t, fleet: f, server: server, url: url, random: rand.New(rand.NewPCG(seed, 0))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var breaking sync.WaitGroup
	breaking.Go(func() { b.run(ctx) })
	f.KillAtWork()
	cancel()
	breaking.Wait()
	t.Log(f.Table())
	f.CheckKills()
	b.check()
	if t.Failed() {
		return
	}

	pool := newPool(t, url)
	s := newStore(t, pool, postgres.Config{})
	f.Drain(s, func() int {
		return count(t, pool, `SELECT count(*) FROM relaybus_owners WHERE name <> '`+fleettest.FinalOwner+`'`)
	})
	fleettest.NewReport(t, f, contents(t, pool)).Check()
}
