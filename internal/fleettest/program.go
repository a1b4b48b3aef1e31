package fleettest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus"
)

// programVariable makes the test binary a program that uses a bus. It holds a program as JSON.
const programVariable = "RELAYBUS_TEST_PROGRAM"

// IsProgram tells if this process is one of a fleet: then TestMain calls [Main].
func IsProgram() bool { return os.Getenv(programVariable) != "" }

// Program is what a process of a process test does. It ends when its standard input does, so that none outlives its
// parent.
type Program struct {
	// Name is the name of the process in the log.
	Name string
	// Role is work, publish, start or count.
	Role string
	// Database names the database, Log the file of the log; "" is the standard output.
	Database, Log string
	// Seed is for what a publisher draws.
	Seed uint64
	// Point is where it kills itself, when it passes there for the Nth time; with Linger only at the next turn.
	Point  string
	Nth    int
	Linger bool
	// Events bounds what a publisher publishes (0 is no bound), and is how often a counter counts.
	Events int
	// Executions is after how many a worker ends by itself; 0 is never.
	Executions int
	// Steered has the handlers of that name; Hold makes them wait.
	Steered, Hold bool
	// Faults says that the database may be gone for a while: then that is no trouble.
	Faults bool

	Owner string
	Lease time.Duration
	Poll  time.Duration
}

// gaveUp is the exit code of a program that ended because the database was gone.
const gaveUp = 3

// actor is a program that runs.
type actor struct {
	Program
	log  *Logbook
	shop *Shop
	// turns gets a value for each line of the standard input.
	turns chan struct{}
	end   func()

	mu sync.Mutex
	// passed counts how often it passed its point, executed its executions.
	passed, executed int
	// completing has the transactions of handlers.
	completing []*completing
	// held is the event whose completion waits for a turn.
	held string
}

// Main runs the program that the environment has, and returns the exit code. open opens the shop; the store calls pass
// at its crash points.
func Main(open func(p Program, pass func(point string)) (*Shop, error)) int {
	p := &actor{turns: make(chan struct{}, 16)}
	if err := p.run(open); err != nil {
		fmt.Fprintln(os.Stderr, "program:", err)
		if p.Faults && isOutage(err) {
			return gaveUp
		}
		return 1
	}
	return 0
}

func isOutage(err error) bool {
	return errors.Is(err, relaybus.ErrUnavailable) || errors.Is(err, relaybus.ErrTimeout)
}

func (p *actor) run(open func(p Program, pass func(point string)) (*Shop, error)) (err error) {
	if err := json.Unmarshal([]byte(os.Getenv(programVariable)), &p.Program); err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	if p.log, err = OpenLog(p.Log, p.Name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.end = sync.OnceFunc(func() {
		p.log.Say(Entry{What: SaidStopping})
		cancel()
	})
	go p.listen()
	if p.shop, err = open(p.Program, p.pass); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.shop.Close()) }()
	switch p.Role {
	case "work":
		err = p.work(ctx)
	case "publish":
		err = p.publish(ctx)
	case "start":
		err = p.start(ctx)
	case "count":
		err = p.count(ctx)
	default:
		err = fmt.Errorf("unknown role %q", p.Role)
	}
	if err == nil {
		p.log.Say(Entry{What: SaidDown})
	}
	return err
}

// listen reads the standard input: a line is a turn, the end of it ends the program.
func (p *actor) listen() {
	defer p.end()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		p.turns <- struct{}{}
	}
}

// Points in the code of the user and around the store, beside those of the store itself.
const (
	PointHandler    = "handler at work"
	PointInTx       = "transactional handler at work"
	PointRow        = "row written, event not"
	PointComplete   = "commit transactional completion"
	PointCompleted  = "committed transactional completion"
	PointRenewed    = "renewed leases"
	PointRelinquish = "about to relinquish owner"
)

// crashMark is what a process says before it kills itself.
const crashMark = "kills itself"

// pass is called at every crash point.
func (p *actor) pass(at string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at != p.Point {
		return
	}
	if p.passed++; p.passed == p.Nth {
		p.log.Say(Entry{What: SaidCrash, Text: at})
		fmt.Fprintln(os.Stderr, crashMark)
		if p.Linger {
			<-p.turns
		}
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {}
	}
}

// bus returns a bus as a user would make it; the store under it notes claims and renewals.
func (p *actor) bus(publishOnly bool) (*relaybus.Bus, error) {
	return relaybus.New(noting{p.shop.Store, p}, relaybus.Config{
		Source:             "shop",
		Owner:              p.Owner,
		LeaseDuration:      p.Lease,
		PollInterval:       p.Poll,
		Concurrency:        concurrency,
		ShutdownTimeout:    10 * time.Second,
		TransactionTimeout: time.Minute,
		// More attempts than there are kills: nothing dies but what wants to.
		Retry:       relaybus.RetryPolicy{MaxAttempts: 1000, Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond},
		PublishOnly: publishOnly,
		Logger:      slog.New(slog.DiscardHandler),
		Hooks:       []relaybus.Hook{outcomes{p.log, p.Faults}},
	})
}

// concurrency is that of a worker, and so the most that one claim takes.
const concurrency = 8

func (p *actor) work(ctx context.Context) error {
	bus, err := p.bus(false)
	if err != nil {
		return err
	}
	handlers := p.handlers(bus)
	if p.Steered {
		handlers = p.steered()
	}
	if err := bus.Subscribe(handlers...); err != nil {
		return err
	}
	if err = bus.Run(ctx); ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // It was ended before it had started.
	}
	return err
}

// execute counts an execution.
func (p *actor) execute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.executed++; p.executed == p.Executions {
		p.end()
	}
}

// start starts a bus at the parent's signal, and stops it.
func (p *actor) start(ctx context.Context) error {
	bus, err := p.bus(false)
	if err != nil {
		return err
	}
	if err := bus.Subscribe(p.handlers(bus)...); err != nil {
		return err
	}
	p.log.Say(Entry{What: SaidUp})
	if !p.turn(ctx) {
		return nil
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	return bus.Stop(ctx)
}

// count reads and then writes, in one transaction each time.
func (p *actor) count(ctx context.Context) error {
	bus, err := p.bus(true)
	if err != nil {
		return err
	}
	p.log.Say(Entry{What: SaidUp})
	if !p.turn(ctx) {
		return nil
	}
	for i := range p.Events {
		if err := bus.Transaction(ctx, p.shop.Count); err != nil {
			return fmt.Errorf("transaction %d: %w", i, err)
		}
		p.log.Say(Entry{What: SaidTurn})
	}
	return nil
}

// turn waits for the parent's next line.
func (p *actor) turn(ctx context.Context) bool {
	select {
	case <-p.turns:
		return true
	case <-ctx.Done():
		return false
	}
}

// Wait is false when the context has ended.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
