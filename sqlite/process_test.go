package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/sqlite"
)

// walLimit is what the write-ahead log may grow to: the limit that the store
// sets, which is far above the size at which it is taken up.
const walLimit = 64 << 20

func fleetPoints() fleettest.Points {
	return fleettest.Points{
		Setup:     []string{"commit set up store"},
		Publisher: []string{fleettest.PointRow, "commit run transaction", "committed run transaction"},
		Worker: []string{
			"reaped an owner", "commit claim deliveries", "committed claim deliveries",
			fleettest.PointHandler, fleettest.PointInTx, fleettest.PointComplete, fleettest.PointCompleted,
			"commit settlement", "committed settlement",
			"commit extend leases", "commit relinquish owner",
		},
		Seldom:  []string{"reaped an owner", "commit extend leases", "commit relinquish owner"},
		Leaving: "commit relinquish owner",
	}
}

// F22 I1–I6: four workers and two publishers on one file are killed two hundred
// times, at points in the store and in the code of the user, and at any moment.
// Nothing is lost, invented, doubled or reordered.
func TestProcessSoak(t *testing.T) {
	t.Parallel()
	fleettest.Soak(t, func(seed uint64) { processRound(t, seed) })
}

func processRound(t *testing.T, seed uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	prepare(t, path)
	f := fleettest.NewFleet(t, path, fleetPoints(), seed)
	defer f.Limit()()
	wal := int64(0)
	f.Buried = func(*fleettest.Process) {
		if info, err := os.Stat(path + "-wal"); err == nil {
			wal = max(wal, info.Size())
		}
	}
	f.KillInSetup()
	f.KillAtWork()
	t.Log(f.Table())
	t.Logf("the write-ahead log had up to %d KiB", wal>>10)
	if wal > walLimit {
		t.Errorf("F67: the write-ahead log grew to %d bytes", wal)
	}
	f.CheckKills()
	if t.Failed() {
		return
	}
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	f.Drain(s, nil)
	kept := contents(t, s)
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	fleettest.NewReport(t, f, kept).Check()
}
