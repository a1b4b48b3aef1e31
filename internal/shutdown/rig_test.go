package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// rig is a bus on a store that can be held up, in one round of a scenario.
type rig struct {
	*testing.T
	rand *rand.Rand
	// virtual: time is that of a bubble, so that deadlines can be checked.
	virtual bool

	db    *memstore.Store
	store *gate
	bus   *relaybus.Bus
	// release ends the handlers that ignore their context.
	release chan struct{}
	// started gets a value when a handler starts.
	started chan string
	handled atomic.Int64
	once    sync.Once
	// hurried: some Stop ran into its deadline, or left something. In real time
	// on a busy machine it may then have had no time to give the lanes back.
	hurried atomic.Bool
}

func newRig(t *testing.T, seed uint64, virtual bool) *rig {
	t.Helper()
	db := memstore.New(memstore.Config{})
	return &rig{
		T: t, rand: rand.New(rand.NewPCG(seed, 6)), virtual: virtual,
		db: db, store: newGate(db.Instance()),
		release: make(chan struct{}),
		started: make(chan string, 1000),
	}
}

// open makes the bus.
func (r *rig) open(change func(c *relaybus.Config), handlers ...relaybus.Handler) {
	r.Helper()
	c := relaybus.Config{
		TransactionMode: relaybus.Optional,
		ShutdownTimeout: 10 * time.Second,
		Logger:          slog.New(slog.DiscardHandler),
		Owner:           "one",
	}
	if change != nil {
		change(&c)
	}
	bus, err := relaybus.New(r.store, c)
	if err != nil {
		r.Fatalf("New: %v", err)
	}
	if err := bus.Subscribe(handlers...); err != nil {
		r.Fatalf("Subscribe: %v", err)
	}
	r.bus = bus
}

func (r *rig) start() {
	r.Helper()
	if err := r.bus.Start(r.Context()); err != nil {
		r.Fatalf("Start: %v", err)
	}
}

// quick is a handler that takes a moment and heeds its context.
func (r *rig) quick(id string, d time.Duration) relaybus.Handler {
	return relaybus.Handle(id, []string{"t"}, func(ctx context.Context, _ *relaybus.RawEvent) error {
		r.started <- id
		select {
		case <-time.After(d):
			r.handled.Add(1)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// hung is a handler that ignores its context until the rig lets it go.
func (r *rig) hung(options ...relaybus.HandlerOption) relaybus.Handler {
	const id = "hung"
	return relaybus.Handle(id, []string{"t"}, func(context.Context, *relaybus.RawEvent) error {
		r.started <- id
		select {
		case <-r.release:
		case <-time.After(time.Minute):
		}
		r.handled.Add(1)
		return nil
	}, options...)
}

func (r *rig) letGo() { r.once.Do(func() { close(r.release) }) }

func (r *rig) publish(n int) {
	r.Helper()
	for i := range n {
		if err := r.bus.Publish(r.Context(), relaybus.Raw("t", []byte(`1`), relaybus.ID(fmt.Sprintf("e%d", i)))); err != nil {
			r.Fatalf("Publish: %v", err)
		}
	}
}

// pass lets up to d pass.
func (r *rig) pass(d time.Duration) {
	<-time.After(time.Duration(r.rand.Int64N(int64(d))))
}

// brief is a second, and less in real time: for a Stop that uses up its time.
func (r *rig) brief() time.Duration {
	if r.virtual {
		return time.Second
	}
	return time.Second / 10
}

// ample is a second, and more in real time: for a Stop that need not hurry,
// however busy the machine is.
func (r *rig) ample() time.Duration {
	if r.virtual {
		return time.Second
	}
	return 20 * time.Second
}

// stop stops the bus with a deadline, which it must keep.
func (r *rig) stop(most time.Duration) error {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	began := time.Now()
	err := r.bus.Stop(ctx)
	if took := time.Since(began); r.virtual && took > most {
		r.Errorf("Stop took %v, its deadline was %v: %v", took, most, err)
	}
	if err != nil {
		r.hurried.Store(true)
	}
	return err
}

// stopThrice stops the bus from three goroutines at once, which must all get
// the same answer.
func (r *rig) stopThrice(most time.Duration) error {
	r.Helper()
	var wg sync.WaitGroup
	var errs [3]error
	for i := range errs {
		wg.Go(func() { errs[i] = r.stop(most) })
	}
	wg.Wait()
	first := errs[0]
	for _, err := range errs[1:] {
		if (err == nil) != (errs[0] == nil) {
			r.Errorf("three calls of Stop returned %q", errs)
		}
		if _, ok := errors.AsType[*relaybus.StopError](err); ok {
			first = err // the others may have run into the same deadline first
		}
	}
	return first
}

// wantFree drains the database by another process, at once: it must get n
// deliveries, as first attempts. -1 stands for any number.
func (r *rig) wantFree(n int, ids ...string) {
	r.Helper()
	var mu sync.Mutex
	got := make(map[string]int)
	handlers := make([]relaybus.Handler, len(ids))
	for i, id := range ids {
		handlers[i] = relaybus.Handle(id, []string{"t"}, func(_ context.Context, e *relaybus.RawEvent) error {
			mu.Lock()
			defer mu.Unlock()
			got[e.ID+" "+id]++
			if e.Attempt != 1 {
				r.Errorf("%s was charged for the stop: this is attempt %d", e.ID, e.Attempt)
			}
			return nil
		})
	}
	other, err := relaybus.New(r.db.Instance(), relaybus.Config{Owner: "other", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.Fatalf("New: %v", err)
	}
	if err := other.Subscribe(handlers...); err != nil {
		r.Fatalf("Subscribe: %v", err)
	}
	began := time.Now()
	if _, err := other.Drain(r.Context()); err != nil {
		r.Errorf("Drain by another process: %v", err)
	}
	if took := time.Since(began); r.virtual && took > 100*time.Millisecond {
		r.Errorf("another process got the lanes only after %v", took)
	}
	if !r.virtual && r.hurried.Load() {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if n >= 0 && len(got) != n {
		r.Errorf("another process got %d deliveries at once, want %d", len(got), n)
	}
	stats, err := r.db.Stats(r.Context(), time.Now())
	if err != nil || stats.Pending+stats.Running+stats.Dead != 0 {
		r.Errorf("left behind: %+v, %v", stats, err)
	}
}

// wantGoroutines checks that nothing of the bus is left but n handlers.
func (r *rig) wantGoroutines(handlers int) {
	r.Helper()
	if !r.virtual {
		return
	}
	synctest.Wait()
	left := bubble()
	running := 0
	for _, stack := range left {
		switch {
		case strings.Contains(stack, "dispatch.(*Engine).run("):
			running++
		case strings.Contains(stack, "dispatch.protect.func"): // the function of a transactional one
		case strings.Contains(stack, "shutdown_test.(*rig)"): // a goroutine of the test's own
		default:
			r.Errorf("a goroutine is left:\n%s", stack)
		}
	}
	if running != handlers {
		r.Errorf("%d handlers are left, want %d", running, handlers)
	}
}

// bubble returns the stacks of the other goroutines in this bubble.
func bubble() []string {
	buf := make([]byte, 1<<20)
	text := string(buf[:runtime.Stack(buf, true)])
	stacks := strings.Split(text, "\n\n")
	header, _, _ := strings.Cut(stacks[0], "\n")
	_, own, ok := strings.Cut(header, "synctest bubble ")
	if !ok {
		return nil
	}
	own = strings.TrimSuffix(own, "]:")
	var others []string
	for _, stack := range stacks[1:] {
		header, _, _ := strings.Cut(stack, "\n")
		// Those that wait for the test's own function are no part of it.
		waits := strings.Contains(stack, "internal/synctest.Run(") || strings.Contains(stack, "testing.testingSynctestTest(") ||
			strings.Contains(stack, "testing/synctest.testingSynctestTest(")
		if strings.Contains(header, "synctest bubble "+own+"]") && !waits {
			others = append(others, stack)
		}
	}
	return others
}
