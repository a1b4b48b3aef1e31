package simulation_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

const catalogInterval = 200 * time.Millisecond

// world is one run: the processes on one database, and those who use them.
type world struct {
	plan    *plan
	history *history
	db      *memstore.Store
	// mistake wraps each instance of the store; it may be nil.
	mistake func(*memstore.Store) backend
	// calls is held during a call of the store in strict plans.
	calls sync.Mutex

	// calm is closed when the faults stop, end when the processes are to stop.
	calm, end chan struct{}
	// background has what ends by itself: crashed processes.
	background sync.WaitGroup

	// trace gets a line for each call of the store; it may be nil.
	trace func(format string, args ...any)

	mu      sync.Mutex
	began   time.Time
	calmed  time.Time
	crashes int
	slots   []*process
}

// run runs the plan in the current bubble and returns what it found.
func run(p *plan, mistake func(*memstore.Store) backend, trace func(format string, args ...any)) *world {
	w := &world{
		plan:    p,
		history: newHistory(p),
		db:      memstore.New(memstore.Config{History: true}),
		mistake: mistake,
		trace:   trace,
		calm:    make(chan struct{}),
		end:     make(chan struct{}),
		crashes: 3,
		slots:   make([]*process, len(p.slots)),
	}
	var slots, steps sync.WaitGroup
	for _, s := range p.slots {
		slots.Go(func() { w.supervise(s) })
	}
	// So that everybody knows everybody's handlers before the first publish.
	time.Sleep(2*catalogInterval + time.Millisecond) //nolint:forbidigo // virtual time
	w.mu.Lock()
	w.began = time.Now()
	w.mu.Unlock()
	for _, s := range p.steps {
		steps.Go(func() {
			time.Sleep(s.at) //nolint:forbidigo // virtual time
			w.perform(s)
		})
	}
	time.Sleep(p.calm) //nolint:forbidigo // virtual time
	w.settleDown(&steps)
	close(w.end)
	slots.Wait()
	w.background.Wait()
	// Handlers of stopped processes that ignored their context end by now.
	time.Sleep(2 * p.lease) //nolint:forbidigo // virtual time
	w.history.final(context.Background(), w.db)
	return w
}

// settleDown ends the faults and waits until nothing is left to do.
func (w *world) settleDown(steps *sync.WaitGroup) {
	ctx := context.Background()
	began := time.Now()
	w.mu.Lock()
	w.calmed = began
	w.mu.Unlock()
	close(w.calm)
	synctest.Wait()
	bound := w.history.bound(began)
	admin := newFaultyStore(&process{world: w, plan: &slotPlan{owner: "admin"}, dead: make(chan struct{})}, w.newInstance(), w.history)
	for _, h := range w.plan.handlers {
		if err := admin.PauseHandler(ctx, h.name, false, time.Now()); err != nil && !known(err) {
			w.history.suspect("B17: resume: %v", err)
		}
	}
	// Nothing wakes the processes from here on, but what they do themselves.
	requeued := false
	for {
		w.letPass(ctx, admin, &requeued)
		stats, err := w.db.Stats(ctx, time.Now())
		if err != nil {
			w.history.suspect("I6: the deliveries can't be counted: %v", err)
			break
		}
		if stats.Pending+stats.Running == 0 && stats.Held == 0 {
			break
		}
		if time.Now().After(bound) {
			w.history.suspect("I6: %v after the faults stopped %d are pending and %d running: %v",
				time.Since(began), stats.Pending, stats.Running, w.history.unfinished())
			break
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
	}
	steps.Wait()
	w.drained(ctx, bound)
	w.ready(bound)
}

// ready waits until every process is, which takes no longer than a start whose
// first call hung when the faults stopped.
func (w *world) ready(bound time.Time) {
	for {
		var not error
		for _, p := range w.all() {
			if err := p.bus.Ready(); err != nil {
				not = fmt.Errorf("%s is not ready: %w", p, err)
			}
		}
		if not == nil {
			return
		}
		if time.Now().After(bound) {
			w.history.suspect("I6: after the faults stopped %v", not)
			return
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
	}
}

// drained waits for what the last steps published.
func (w *world) drained(ctx context.Context, bound time.Time) {
	for most := later(bound, time.Now().Add(w.plan.lease)); time.Now().Before(most); {
		stats, err := w.db.Stats(ctx, time.Now())
		if err == nil && stats.Pending+stats.Running == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
	}
}

// letPass requeues the first delivery that holds a key, and skips all others.
func (w *world) letPass(ctx context.Context, admin *faultyStore, requeued *bool) {
	held, err := listAll(ctx, admin, store.Filter{HoldsKey: true})
	if err != nil {
		w.history.suspect("B13: held keys can't be listed: %v", err)
	}
	for _, row := range held {
		if !*requeued {
			*requeued = true
			err = admin.Requeue(ctx, []store.DeliveryID{row.ID}, time.Now())
		} else {
			err = admin.Skip(ctx, row.ID, time.Now())
		}
		if err != nil && !known(err) {
			w.history.suspect("B13: %v", err)
		}
	}
}

// supervise keeps a process in a slot.
func (w *world) supervise(s *slotPlan) {
	for incarnation := 0; ; incarnation++ {
		p := w.newProcess(s, incarnation)
		if p == nil {
			return
		}
		w.mu.Lock()
		w.slots[s.number] = p
		w.mu.Unlock()
		p.live()
		if w.isEnding() {
			return
		}
		r := w.plan.random("restart", s.owner, strconv.Itoa(incarnation))
		w.sleep(time.Duration(1 + r.Int64N(int64(w.plan.lease))))
	}
}

// sleep waits, in calm times only for a moment.
func (w *world) sleep(d time.Duration) {
	if w.isCalm() {
		time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
		return
	}
	select {
	case <-time.After(d):
	case <-w.calm:
	}
}

func (w *world) newInstance() backend {
	if w.mistake != nil {
		return w.mistake(w.db.Instance())
	}
	return w.db.Instance()
}

func (w *world) current(slot int) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slots[slot]
}

func (w *world) all() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*process(nil), w.slots...)
}

// warming: the processes start for the first time, without faults.
func (w *world) warming() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.began.IsZero()
}

// passed is the time since the run began.
func (w *world) passed() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		return -1
	}
	return time.Since(w.began)
}

// calmSince is when the faults stopped; a call that hung by then may hang on.
func (w *world) calmSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calmed
}

func (w *world) isCalm() bool { return closed(w.calm) }

func (w *world) isEnding() bool { return closed(w.end) }

func closed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// mayCrash says whether one more process may crash.
func (w *world) mayCrash() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crashes == 0 || w.isCalm() {
		return false
	}
	w.crashes--
	return true
}
