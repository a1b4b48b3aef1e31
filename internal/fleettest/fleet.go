package fleettest

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

	"github.com/relaybus-go/relaybus/store"
)

// How much a fleet is killed.
const (
	Kills   = 200
	Hits    = 10
	random  = 50 // of the kills are at any moment
	Workers = 4
	Poll    = 200 * time.Millisecond
	// patience is how long a process may take to pass the point where it is to kill itself, before it is killed otherwise.
	patience = 10 * time.Second
	// limit is when a fleet that does not get through gives up.
	limit = 10 * time.Minute
)

// Points are where the processes of a fleet are killed, each of them [Hits] times.
type Points struct {
	// Setup has those of a process that sets up the store, Publisher and Worker those of a process at work.
	Setup, Publisher, Worker []string
	// Seldom has those of a worker that it passes only now and then: it is killed there the first time.
	Seldom []string
	// Leaving is where a worker passes that ends by itself.
	Leaving string
}

func (p Points) all() []string { return slices.Concat(p.Setup, p.Publisher, p.Worker) }

// Fleet is four workers and two publishers on one database, which are killed and started again, and what became of them.
type Fleet struct {
	t        *testing.T
	database string
	dir      string
	log      string
	seed     uint64
	points   Points
	stop     chan struct{}
	own      *Logbook

	// Lease is that of its workers, a second by default. Faults says that the database may be gone for a while.
	Lease  time.Duration
	Faults bool
	// Buried, if set, is told of each process that has ended, one after the other. It must not call the fleet.
	Buried func(p *Process)

	mu       sync.Mutex
	hits     map[string]int
	random   int
	graceful int
	faults   int
	killed   map[string]bool
	// workers counts the workers among the killed.
	workers int
	stopped bool
	deaths  chan int
}

// NewFleet returns a fleet that has not been launched. What it draws is repeated with the same seed.
func NewFleet(t *testing.T, database string, points Points, seed uint64) *Fleet {
	t.Helper()
	dir := filepath.Join(t.ArtifactDir(), strconv.FormatUint(seed, 10)) // kept with go test -artifacts
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatalf("make a directory: %v", err)
	}
	f := &Fleet{
		t: t, database: database, dir: dir, log: filepath.Join(dir, "log"), seed: seed, points: points, Lease: time.Second,
		stop: make(chan struct{}), hits: make(map[string]int), killed: make(map[string]bool), deaths: make(chan int, 10_000),
	}
	var err error
	if f.own, err = OpenLog(f.log, "fleet"); err != nil {
		t.Fatalf("open log: %v", err)
	}
	return f
}

// Say writes an entry of the parent's into the log.
func (f *Fleet) Say(what, text string) {
	f.mu.Lock()
	if what == SaidFault {
		f.faults++
	}
	f.mu.Unlock()
	f.own.Say(Entry{What: what, Text: text})
}

// Deaths has, for each process that was killed, how many there were then.
func (f *Fleet) Deaths() <-chan int { return f.deaths }

// life is how one process is to end.
type life struct {
	point string
	nth   int
	// after is when it is killed in any case.
	after time.Duration
}

// KillInSetup lets six processes set up the database, all at once, until each point has been hit often enough.
func (f *Fleet) KillInSetup() {
	var group sync.WaitGroup
	for slot := range Workers + 2 {
		group.Go(func() {
			for n := 0; !f.enough(f.points.Setup) && f.going(); n++ {
				p := f.Program("work", slot, fmt.Sprintf("setup-%d#%d", slot, n))
				f.live(p, life{point: f.points.Setup[n%len(f.points.Setup)], nth: 1, after: patience})
			}
		})
	}
	group.Wait()
}

// KillAtWork lets the fleet work until it has been killed often enough.
func (f *Fleet) KillAtWork() {
	seeds := rand.New(rand.NewPCG(f.seed, f.seed))
	var group sync.WaitGroup
	for slot := range Workers + 2 {
		role, points := "work", f.points.Worker
		if slot >= Workers {
			role, points = "publish", f.points.Publisher
		}
		random := rand.New(rand.NewPCG(seeds.Uint64(), seeds.Uint64()))
		group.Go(func() { f.keep(role, slot, points, random) })
	}
	group.Wait()
}

// keep starts a process again whenever it has ended.
func (f *Fleet) keep(role string, slot int, points []string, random *rand.Rand) {
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
		l := life{point: round[0], after: patience}
		round = round[1:]
		if l.point != "" && f.enough([]string{l.point}) {
			continue
		}
		switch {
		case l.point == "":
			if l.after = f.moment(random, points); l.after == 0 {
				continue
			}
		case slices.Contains(f.points.Seldom, l.point):
			l.nth = 1
		default:
			l.nth = 1 + random.IntN(12)
		}
		p := f.Program(role, slot, fmt.Sprintf("%s-%d#%d", role, slot, n))
		p.Seed = random.Uint64()
		if l.point == f.points.Leaving {
			p.Executions = 1 + random.IntN(20)
		}
		f.live(p, l)
	}
}

// moment is when to kill a process for which no point is named: at any moment while kills of that kind are wanted. A
// process that is not to be killed again lives on.
func (f *Fleet) moment(draw *rand.Rand, points []string) time.Duration {
	drawn := time.Duration(50+draw.IntN(3000)) * time.Millisecond
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.random < random:
		return drawn
	case f.reached(points):
		return limit
	default:
		return 0
	}
}

// Program is one for a process of the fleet.
func (f *Fleet) Program(role string, slot int, name string) Program {
	p := Program{Name: name, Role: role, Database: f.database, Log: f.log, Lease: f.Lease, Poll: Poll, Faults: f.Faults}
	if slot < Workers/2 {
		// These come back under the name of their predecessor.
		p.Owner = fmt.Sprintf("worker-%d", slot)
	}
	return p
}

// live runs one process to its end.
func (f *Fleet) live(p Program, l life) {
	p.Point, p.Nth = l.point, l.nth
	r := Launch(f.t, p)
	timer := time.NewTimer(l.after)
	defer timer.Stop()
	stop := f.stop
	for alive := true; alive; {
		select {
		case <-timer.C:
			r.Kill()
		case <-stop:
			stop = nil
			r.End()
		case <-r.ended:
			alive = false
		}
	}
	f.bury(r)
}

// bury notes how a process ended.
func (f *Fleet) bury(r *Process) {
	if problem := r.Problem(); problem != "" {
		f.t.Errorf("%s: %s", r.Name, problem)
		f.End()
	}
	if r.Killed() {
		f.own.Say(Entry{What: SaidDead, Text: r.Name})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Buried != nil {
		f.Buried(r)
	}
	switch {
	case !r.Killed():
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
	select {
	case f.deaths <- len(f.killed):
	default:
	}
	if len(f.killed) >= Kills && f.reached(f.points.all()) {
		f.stopLocked()
	}
}

func (f *Fleet) reached(points []string) bool {
	return !slices.ContainsFunc(points, func(point string) bool { return point != "" && f.hits[point] < Hits })
}

func (f *Fleet) enough(points []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reached(points)
}

func (f *Fleet) going() bool {
	select {
	case <-f.stop:
		return false
	default:
		return true
	}
}

// End lets the fleet end.
func (f *Fleet) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopLocked()
}

func (f *Fleet) stopLocked() {
	if !f.stopped {
		f.stopped = true
		close(f.stop)
	}
}

// CheckKills reports an error unless the fleet was killed as often as it was to be.
func (f *Fleet) CheckKills() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, point := range f.points.all() {
		if f.hits[point] < Hits {
			f.t.Errorf("%d processes were killed at %q, want %d", f.hits[point], point, Hits)
		}
	}
	if len(f.killed) < Kills {
		f.t.Errorf("%d kills, want %d", len(f.killed), Kills)
	}
}

// FinalOwner is the owner that works off what is left.
const FinalOwner = "final"

// Drain lets one worker, which nobody kills, work off what is left. left tells how much there is for it beside
// deliveries; it may be nil.
func (f *Fleet) Drain(s store.Store, left func() int) {
	f.t.Helper()
	if err := ignoreMissing(s.PauseHandler(f.t.Context(), HandlerMail, false, time.Now())); err != nil {
		f.t.Fatalf("resume: %v", err)
	}
	p := f.Program("work", Workers, "final")
	p.Owner = FinalOwner
	r := Launch(f.t, p)
	Await(f.t, s, left, r)
	r.MustEnd(f.t)
}

// Await waits until nothing is left to do for the workers; left is as in [Fleet.Drain].
func Await(t *testing.T, s store.Store, left func() int, workers ...*Process) {
	t.Helper()
	last, at := int64(-1), time.Now()
	for {
		stats, err := s.Stats(t.Context(), time.Now())
		if err != nil {
			t.Fatalf("statistics: %v", err)
		}
		n, more := stats.Pending+stats.Running, 0
		if left != nil {
			more = left()
			n += int64(more)
		}
		if n == 0 {
			break
		}
		if n != last {
			last, at = n, time.Now()
		}
		if time.Since(at) > Patience || !Wait(t.Context(), 50*time.Millisecond) {
			t.Fatalf("I6: %d deliveries or owners are stuck: %+v, %d", n, stats, more)
		}
		for _, r := range workers {
			select {
			case <-r.ended:
				t.Fatalf("%s ended early: %v: %s", r.Name, r.err, r.stderr.String())
			default:
			}
		}
	}
}

// Table is how often each point was hit.
func (f *Fleet) Table() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d kills of processes (seed %d; %d processes ended by themselves):\n", len(f.killed), f.seed, f.graceful)
	for _, point := range slices.Sorted(maps.Keys(f.hits)) {
		fmt.Fprintf(&b, "  %4d  %s\n", f.hits[point], point)
	}
	fmt.Fprintf(&b, "  %4d  at any moment", f.random)
	return b.String()
}

// Limit ends the fleet when it takes too long. The returned function ends that.
func (f *Fleet) Limit() func() {
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		f.End()
	}()
	return func() {
		cancel()
		<-done
	}
}
