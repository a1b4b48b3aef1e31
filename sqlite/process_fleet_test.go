package sqlite_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
)

// How much a fleet is killed.
const (
	fleetKills   = 200
	fleetHits    = 10
	fleetRandom  = 50 // of the kills are at any moment
	fleetWorkers = 4
	fleetLease   = time.Second
	fleetPoll    = 200 * time.Millisecond
	// fleetPatience is how long a process may take to pass the point where it is
	// to kill itself, before it is killed otherwise.
	fleetPatience = 10 * time.Second
	// fleetLimit is when a fleet that does not get through gives up.
	fleetLimit = 10 * time.Minute
)

func setupPoints() []string { return []string{"commit set up store"} }

func publisherPoints() []string {
	return []string{pointRow, "commit run transaction", "committed run transaction"}
}

func workerPoints() []string {
	return []string{
		"reaped an owner", "commit claim deliveries", "committed claim deliveries",
		pointHandler, pointInTx, pointComplete, pointCompleted,
		"commit settlement", "committed settlement",
		"commit extend leases", pointRelinquish,
	}
}

const pointRelinquish = "commit relinquish owner"

// fleet is four workers and two publishers on one file, which are killed and
// started again, and what became of them.
type fleet struct {
	t    *testing.T
	path string
	log  string
	seed uint64
	// lease is that of its workers.
	lease time.Duration
	stop  chan struct{}

	mu       sync.Mutex
	hits     map[string]int
	random   int
	graceful int
	killed   map[string]bool
	// workers counts the workers among the killed.
	workers int
	wal     int64
	stopped bool
}

func newFleet(t *testing.T, seed uint64) *fleet {
	t.Helper()
	dir := filepath.Join(t.ArtifactDir(), strconv.FormatUint(seed, 10)) // kept with go test -artifacts
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatalf("make a directory: %v", err)
	}
	f := &fleet{
		t: t, path: filepath.Join(dir, "shop.db"), log: filepath.Join(dir, "log"), seed: seed, lease: fleetLease,
		stop: make(chan struct{}), hits: make(map[string]int), killed: make(map[string]bool),
	}
	prepare(t, f.path)
	return f
}

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

// life is how one process is to end.
type life struct {
	point string
	nth   int
	// after is when it is killed in any case.
	after time.Duration
}

// killInSetup lets six processes set up the file, all at once, until each has
// been killed often enough.
func (f *fleet) killInSetup() {
	var group sync.WaitGroup
	for slot := range fleetWorkers + 2 {
		group.Go(func() {
			for n := 0; !f.enough(setupPoints()) && f.going(); n++ {
				p := f.program("work", slot, fmt.Sprintf("setup-%d#%d", slot, n))
				f.live(p, life{point: setupPoints()[n%len(setupPoints())], nth: 1, after: fleetPatience})
			}
		})
	}
	group.Wait()
}

// killAtWork lets the fleet work until it has been killed often enough.
func (f *fleet) killAtWork() {
	seeds := rand.New(rand.NewPCG(f.seed, f.seed))
	var group sync.WaitGroup
	for slot := range fleetWorkers + 2 {
		role, points := "work", workerPoints()
		if slot >= fleetWorkers {
			role, points = "publish", publisherPoints()
		}
		random := rand.New(rand.NewPCG(seeds.Uint64(), seeds.Uint64()))
		group.Go(func() { f.keep(role, slot, points, random) })
	}
	group.Wait()
}

// keep starts a process again whenever it has ended.
func (f *fleet) keep(role string, slot int, points []string, random *rand.Rand) {
	var round []string
	for n := 0; f.going(); n++ {
		if len(round) == 0 {
			round = slices.Clone(points)
			random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
			// A third is killed at any moment.
			for range len(points)/2 + 1 {
				round = slices.Insert(round, random.IntN(len(round)+1), "")
			}
		}
		l := life{point: round[0], after: fleetPatience}
		round = round[1:]
		if l.point != "" && f.enough([]string{l.point}) {
			continue
		}
		switch l.point {
		case "":
			if l.after = f.moment(random, points); l.after == 0 {
				continue
			}
		case "reaped an owner", "commit extend leases", pointRelinquish:
			l.nth = 1
		default:
			l.nth = 1 + random.IntN(12)
		}
		p := f.program(role, slot, fmt.Sprintf("%s-%d#%d", role, slot, n))
		p.Seed = random.Uint64()
		if l.point == pointRelinquish {
			p.Executions = 1 + random.IntN(20)
		}
		f.live(p, l)
	}
}

// moment is when to kill a process for which no point is named: at any moment
// while kills of that kind are wanted. A process that is not to be killed again
// lives on.
func (f *fleet) moment(random *rand.Rand, points []string) time.Duration {
	drawn := time.Duration(50+random.IntN(3000)) * time.Millisecond
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.random < fleetRandom:
		return drawn
	case f.reached(points):
		return fleetLimit
	default:
		return 0
	}
}

func (f *fleet) program(role string, slot int, name string) program {
	p := program{Name: name, Role: role, Path: f.path, Log: f.log, Lease: f.lease, Poll: fleetPoll}
	if slot < fleetWorkers/2 {
		// These come back under the name of their predecessor.
		p.Owner = fmt.Sprintf("worker-%d", slot)
	}
	return p
}

// live runs one process to its end.
func (f *fleet) live(p program, l life) {
	p.Point, p.Nth = l.point, l.nth
	r := launch(f.t, p)
	timer := time.NewTimer(l.after)
	defer timer.Stop()
	stop := f.stop
	for alive := true; alive; {
		select {
		case <-timer.C:
			r.kill()
		case <-stop:
			stop = nil
			r.end()
		case <-r.ended:
			alive = false
		}
	}
	f.buried(r)
}

// buried notes how a process ended.
func (f *fleet) buried(r *running) {
	if problem := r.problem(); problem != "" {
		f.t.Errorf("%s: %s", r.Name, problem)
		f.end()
	}
	wal := int64(0)
	if info, err := os.Stat(f.path + "-wal"); err == nil {
		wal = info.Size()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wal = max(f.wal, wal)
	switch {
	case !r.killed():
		f.graceful++
		return
	case r.crashed():
		f.hits[r.Point]++
	default:
		f.random++
	}
	f.killed[r.Name] = true
	if r.Role == "work" {
		f.workers++
	}
	if f.kills() >= fleetKills && f.reached(slices.Concat(setupPoints(), workerPoints(), publisherPoints())) {
		f.stopLocked()
	}
}

func (f *fleet) kills() int { return len(f.killed) }

func (f *fleet) reached(points []string) bool {
	return !slices.ContainsFunc(points, func(point string) bool { return point != "" && f.hits[point] < fleetHits })
}

func (f *fleet) enough(points []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reached(points)
}

func (f *fleet) going() bool {
	select {
	case <-f.stop:
		return false
	default:
		return true
	}
}

// end lets the fleet end.
func (f *fleet) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopLocked()
}

func (f *fleet) stopLocked() {
	if !f.stopped {
		f.stopped = true
		close(f.stop)
	}
}

// drain lets one worker, which nobody kills, work off what is left.
func (f *fleet) drain(s *sqlite.Store) {
	f.t.Helper()
	if err := ignoreMissing(s.PauseHandler(f.t.Context(), handlerMail, false, time.Now())); err != nil {
		f.t.Fatalf("resume: %v", err)
	}
	r := launch(f.t, f.program("work", fleetWorkers, "final"))
	f.await(s, r)
	r.mustEnd(f.t)
}

// await waits until nothing is left to do for the workers.
func (f *fleet) await(s *sqlite.Store, workers ...*running) {
	f.t.Helper()
	last, at := int64(-1), time.Now()
	for {
		stats, err := s.Stats(f.t.Context(), time.Now())
		if err != nil {
			f.t.Fatalf("statistics: %v", err)
		}
		left := stats.Pending + stats.Running
		if left == 0 {
			break
		}
		if left != last {
			last, at = left, time.Now()
		}
		if time.Since(at) > testPatience || !wait(f.t.Context(), 50*time.Millisecond) {
			f.t.Fatalf("I6: %d deliveries are stuck: %+v", left, stats)
		}
		for _, r := range workers {
			select {
			case <-r.ended:
				f.t.Fatalf("%s ended early: %v: %s", r.Name, r.err, r.stderr.String())
			default:
			}
		}
	}
}

// table is how often each point was hit.
func (f *fleet) table() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d kills of processes (seed %d; %d processes ended by themselves):\n", f.kills(), f.seed, f.graceful)
	for _, point := range slices.Sorted(maps.Keys(f.hits)) {
		fmt.Fprintf(&b, "  %4d  %s\n", f.hits[point], point)
	}
	fmt.Fprintf(&b, "  %4d  at any moment\n", f.random)
	fmt.Fprintf(&b, "the write-ahead log had up to %d KiB", f.wal>>10)
	return b.String()
}

// limit ends the fleet when it takes too long.
func (f *fleet) limit() func() {
	ctx, cancel := context.WithTimeout(f.t.Context(), fleetLimit)
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		f.end()
	}()
	return func() {
		cancel()
		<-done
	}
}
