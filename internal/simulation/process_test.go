package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus"
)

// process is one incarnation of a slot: a bus on a store instance of its own.
type process struct {
	world       *world
	plan        *slotPlan
	incarnation int
	store       *faultyStore
	bus         *relaybus.Bus
	// dead is closed when it crashes, leave when somebody wants it to stop.
	dead, leave chan struct{}
	once, asked sync.Once

	mu        sync.Mutex
	faults    int
	lastFault time.Time

	// The history's, guarded by its mutex: until when its lease runs, and its
	// claims.
	registered bool
	until      time.Time
	claims     map[deliveryName]*claimRecord
	// outages counts what a handler reported in a row.
	outages map[string]int
}

func (p *process) String() string { return fmt.Sprintf("%s#%d", p.plan.owner, p.incarnation) }

func (w *world) newProcess(s *slotPlan, incarnation int) *process {
	p := &process{
		world: w, plan: s, incarnation: incarnation,
		dead: make(chan struct{}), leave: make(chan struct{}),
		claims: make(map[deliveryName]*claimRecord), outages: make(map[string]int),
	}
	p.store = newFaultyStore(p, w.newInstance(), w.history)
	w.history.mu.Lock()
	w.history.processes = append(w.history.processes, p)
	w.history.mu.Unlock()

	r := w.plan.random("jitter", s.owner, strconv.Itoa(incarnation))
	var jitter sync.Mutex
	lease := w.plan.lease
	bus, err := relaybus.New(p.store, relaybus.Config{
		TransactionMode:    relaybus.Optional,
		TransactionTimeout: lease / 3,
		Concurrency:        s.concurrency,
		BatchSize:          s.batch,
		PollInterval:       w.plan.poll,
		LeaseDuration:      lease,
		ShutdownTimeout:    lease / 2,
		CancelGrace:        w.plan.grace,
		CompletionLinger:   w.plan.linger,
		CatalogInterval:    catalogInterval,
		PublishOnly:        s.publishOnly,
		Retention:          relaybus.Retention{Interval: lease},
		Retry:              relaybus.RetryPolicy{MaxAttempts: w.plan.attempts, Base: 10 * time.Millisecond, Cap: w.plan.retryCap},
		Hooks:              []relaybus.Hook{&witness{p}},
		Logger:             slog.New(slog.DiscardHandler),
		Owner:              s.owner,
		Random: func() float64 {
			jitter.Lock()
			defer jitter.Unlock()
			return r.Float64()
		},
	})
	if err == nil {
		err = bus.Subscribe(p.handlers()...)
	}
	if err != nil {
		w.history.suspect("the bus of %s can't be made: %v", p, err)
		return nil
	}
	p.bus = bus
	return p
}

func (p *process) handlers() []relaybus.Handler {
	var list []relaybus.Handler
	for _, h := range p.world.plan.handlers {
		id := p.plan.handlers[h.name]
		if id == "" {
			continue
		}
		var options []relaybus.HandlerOption
		if h.transactional {
			options = append(options, relaybus.Transactional())
		}
		if h.hold {
			options = append(options, relaybus.HoldKey())
		}
		if h.concurrency > 0 {
			options = append(options, relaybus.Concurrency(h.concurrency))
		}
		if h.timeout > 0 {
			options = append(options, relaybus.Timeout(h.timeout))
		}
		if id == "mail.v2" {
			options = append(options, relaybus.Aliases("mail.v1"))
		}
		list = append(list, relaybus.Handle(id, h.types, p.handler(h), options...))
	}
	return list
}

// live runs the process until it stops or crashes. What is left of a crashed
// one ends in the background.
func (p *process) live() {
	if p.plan.byRun {
		p.liveByRun()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.world.plan.lease)
	began := time.Now()
	err := p.bus.Start(ctx)
	cancel()
	if most := p.world.plan.lease + p.downTime(); time.Since(began) > most {
		p.world.history.suspect("F06: Start of %s took %v, at most %v are allowed: %v", p, time.Since(began), most, err)
	}
	if err != nil {
		return
	}
	p.await(nil)
	if p.isDead() {
		p.world.background.Go(func() {
			r := p.world.plan.random("zombie", p.String())
			p.world.sleep(time.Duration(r.Int64N(int64(2 * p.world.plan.lease))))
			p.stop()
		})
		return
	}
	p.stop()
}

func (p *process) liveByRun() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	p.world.background.Go(func() { ended <- p.bus.Run(ctx) })
	p.superviseStart()
	p.await(ended)
	began := time.Now()
	cancel()
	cancel()
	select {
	case err := <-ended:
		p.stopped(err)
	case <-time.After(p.world.plan.lease/2 + p.downTime()):
		p.world.history.suspect("F06: Run of %s has not returned %v after its context ended", p, time.Since(began))
	}
}

// superviseStart retires a process that has not become ready within a lease, as
// Run itself has no limit for its start.
func (p *process) superviseStart() {
	w := p.world
	w.background.Go(func() {
		for began := time.Now(); p.bus.Ready() != nil; {
			if w.isEnding() || p.isDead() {
				return
			}
			if time.Since(began) > w.plan.lease {
				p.retire()
				return
			}
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time
		}
	})
}

// await waits until the process is to end, or has ended.
func (p *process) await(ended chan error) {
	select {
	case err := <-ended:
		ended <- err
	case <-p.dead:
	case <-p.leave:
	case <-p.world.end:
	}
}

// downTime is how long taking everything down may take beside the grace for
// handlers.
func (p *process) downTime() time.Duration { return p.world.plan.lease/2 + 2*p.world.plan.grace }

func (p *process) stop() {
	r := p.world.plan.random("stop", p.String())
	most := p.world.plan.lease/4 + time.Duration(r.Int64N(int64(p.world.plan.lease)))
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	began := time.Now()
	err := p.bus.Stop(ctx)
	if took := time.Since(began); took > most {
		p.world.history.suspect("F06: Stop of %s took %v, its deadline was %v: %v", p, took, most, err)
	}
	p.stopped(err)
}

func (p *process) stopped(err error) {
	var stop *relaybus.StopError
	if err == nil && !p.isDead() {
		p.world.history.mu.Lock()
		defer p.world.history.mu.Unlock()
		for name, c := range p.claims {
			if !c.over && p.world.history.exact() {
				p.world.history.report("B15: %s has stopped without an error, and still has %s", p, name)
			}
		}
		return
	}
	if p.world.isEnding() && p.healthySince().Before(p.world.calmSince()) && errors.As(err, &stop) {
		p.world.history.suspect("B15: %s could not be stopped at the end: %v", p, err)
	}
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

func (p *process) crash() { p.once.Do(func() { close(p.dead) }) }

func (p *process) retire() { p.asked.Do(func() { close(p.leave) }) }

// fault notes that something is wrong until the function that it returns is
// called.
func (p *process) fault() (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults--
		p.lastFault = time.Now()
	}
}

// healthySince is since when nothing has been wrong: a time to come while
// something is.
func (p *process) healthySince() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults > 0 || p.isDead() {
		return time.Now().Add(time.Hour)
	}
	return p.lastFault
}

// witness is the hook of a process: what a bus tells must be true.
type witness struct{ process *process }

func (w *witness) OnPublished(_ context.Context, p relaybus.Published) {
	if p.Outcome != relaybus.Committed {
		return
	}
	for _, e := range p.Events {
		if !w.process.world.history.isCommitted(e.ID) {
			w.process.world.history.suspect("I2: a hook was told that %s is committed, and it is not", e.ID)
		}
	}
}

func (w *witness) OnSucceeded(a relaybus.Attempt) {
	w.check(a, "succeeded", func(d *deliveryRecord) bool { return d.completed })
}

func (w *witness) OnBuried(a relaybus.Attempt) {
	w.check(a, "was buried", func(d *deliveryRecord) bool { return d.burials > 0 })
}

func (w *witness) check(a relaybus.Attempt, what string, is func(d *deliveryRecord) bool) {
	h := w.process.world.history
	h.mu.Lock()
	defer h.mu.Unlock()
	name := deliveryName{a.Event.ID, handlerName(a.Handler)}
	if d := h.deliveries[name]; d == nil || !is(d) {
		h.report("I5: a hook of %s was told that %s %s, and the store did not record it", w.process, name, what)
	}
}

var _ interface {
	relaybus.HookPublished
	relaybus.HookSucceeded
	relaybus.HookBuried
} = (*witness)(nil)
