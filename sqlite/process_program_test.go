package sqlite_test

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
	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// programVariable makes the test binary a program that uses a bus on a file. It
// holds a program as JSON.
const programVariable = "RELAYBUS_SQLITE_TEST_PROGRAM"

func isProgram() bool { return os.Getenv(programVariable) != "" }

// program is what a process of a process test does. It ends when its standard
// input does, so that none outlives its parent.
type program struct {
	// Name is the name of the process in the log.
	Name string
	// Role is work, publish, start or count.
	Role string
	// Path is the file, Log the log; "" is the standard output.
	Path, Log string
	// Seed is for what a publisher draws.
	Seed uint64
	// Point is where it kills itself, when it passes there for the Nth time; with
	// Linger only at the next turn.
	Point  string
	Nth    int
	Linger bool
	// Events bounds what a publisher publishes (0 is no bound), and is how often
	// a counter counts.
	Events int
	// Executions is after how many a worker ends by itself; 0 is never.
	Executions int
	// Steered has the handlers of that name; Hold makes them wait.
	Steered, Hold bool

	Owner string
	Lease time.Duration
	Poll  time.Duration
}

// actor is a program that runs.
type actor struct {
	program
	log   *logbook
	store *sqlite.Store
	// turns gets a value for each line of the standard input.
	turns chan struct{}
	end   func()

	mu sync.Mutex
	// passed counts how often it passed its point, executed its executions.
	passed, executed int
	// completing says that the writer is in a transaction of a handler that has
	// returned.
	completing bool
}

func programMain() int {
	p := &actor{turns: make(chan struct{}, 16)}
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "program:", err)
		return 1
	}
	return 0
}

func (p *actor) run() (err error) {
	if err := json.Unmarshal([]byte(os.Getenv(programVariable)), &p.program); err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	if p.log, err = openLog(p.Log, p.Name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.end = sync.OnceFunc(func() {
		p.log.say(entry{What: saidStopping})
		cancel()
	})
	go p.listen()
	// A counter takes what everybody gets. The transactions of the others take
	// long where the race detector watches them on a busy machine.
	c := sqlite.Config{BusyTimeout: time.Minute}
	if p.Role == "count" {
		c = sqlite.Config{}
	}
	if p.store, err = sqlite.OpenConfig(p.Path, c); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.store.Close()) }()
	sqlite.Probe(p.store, p.pass)
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
		p.log.say(entry{What: saidDown})
	}
	return err
}

// listen reads the standard input: a line is a turn, the end of it ends the
// program.
func (p *actor) listen() {
	defer p.end()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		p.turns <- struct{}{}
	}
}

// Points in the code of the user, beside those of the store.
const (
	pointHandler   = "handler at work"
	pointInTx      = "transactional handler at work"
	pointRow       = "row written, event not"
	pointComplete  = "commit transactional completion"
	pointCompleted = "committed transactional completion"
)

// crashMark is what a process says before it kills itself.
const crashMark = "kills itself"

// pass is called at every crash point.
func (p *actor) pass(at string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The transaction of a handler that has returned holds the writer until it
	// ends, so that the next settlement is its own.
	switch {
	case at == "begin":
		p.completing = false
	case at == "commit settlement" && p.completing:
		at = pointComplete
	case at == "committed settlement" && p.completing:
		at, p.completing = pointCompleted, false
	}
	if at != p.Point {
		return
	}
	if p.passed++; p.passed == p.Nth {
		p.log.say(entry{What: saidCrash, Text: at})
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

func (p *actor) complete() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.completing = true
}

// bus returns a bus as a user would make it; the store under it notes claims
// and renewals.
func (p *actor) bus(publishOnly bool) (*relaybus.Bus, error) {
	return relaybus.New(noting{p.store, p.log}, relaybus.Config{
		Source:             "shop",
		Owner:              p.Owner,
		LeaseDuration:      p.Lease,
		PollInterval:       p.Poll,
		Concurrency:        8,
		ShutdownTimeout:    10 * time.Second,
		TransactionTimeout: time.Minute,
		// More attempts than there are kills: nothing dies but what wants to.
		Retry:       relaybus.RetryPolicy{MaxAttempts: 1000, Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond},
		PublishOnly: publishOnly,
		Logger:      slog.New(slog.DiscardHandler),
		Hooks:       []relaybus.Hook{outcomes{p.log}},
	})
}

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
	p.log.say(entry{What: saidUp})
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
	p.log.say(entry{What: saidUp})
	if !p.turn(ctx) {
		return nil
	}
	for i := range p.Events {
		err := bus.Transaction(ctx, func(ctx context.Context) error {
			var n int
			tx := sqlite.Tx(ctx)
			if err := tx.QueryRowContext(ctx, `SELECT value FROM counters WHERE name = 'n'`).Scan(&n); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE counters SET value = ? WHERE name = 'n'`, n+1)
			return err
		})
		if err != nil {
			return fmt.Errorf("transaction %d: %w", i, err)
		}
		p.log.say(entry{What: saidTurn})
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

// wait is false when the context has ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// noting is a store that notes claims and renewals with the times that they gave.
type noting struct {
	*sqlite.Store
	log *logbook
}

func (n noting) Claim(ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
	result, err := n.Store.Claim(ctx, r)
	if err == nil && len(result.Deliveries) > 0 {
		e := entry{What: saidClaim, Now: r.Now.UnixMilli()}
		for _, d := range result.Deliveries {
			e.Claims = append(e.Claims, taken{
				Event: d.Event.ID, Handler: d.Lease.Handler, Generation: d.Lease.Token.Claims, Attempt: d.Attempt, Lost: d.Lost,
			})
		}
		n.log.say(e)
	}
	return result, err
}

func (n noting) Extend(
	ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration,
) ([]bool, error) {
	holds, err := n.Store.Extend(ctx, owner, leases, now, lease)
	if err == nil {
		e := entry{What: saidRenewal, Now: now.UnixMilli()}
		for i, l := range leases {
			if holds[i] {
				e.Claims = append(e.Claims, taken{Event: l.EventID, Handler: l.Handler, Generation: l.Token.Claims})
			}
		}
		n.log.say(e)
	}
	return holds, err
}

// outcomes notes how attempts ended.
type outcomes struct{ log *logbook }

func (o outcomes) note(what string, a relaybus.Attempt) {
	o.log.say(entry{What: what, Event: a.Event.ID, Handler: a.Handler, Key: a.Event.Key, Attempt: a.Number})
}

func (o outcomes) OnSucceeded(a relaybus.Attempt) { o.note(saidSucceeded, a) }
func (o outcomes) OnRetried(a relaybus.Attempt)   { o.note(saidRetried, a) }
func (o outcomes) OnBuried(a relaybus.Attempt)    { o.note(saidBuried, a) }
func (o outcomes) OnReleased(a relaybus.Attempt)  { o.note(saidReleased, a) }
func (o outcomes) OnLeaseLost(a relaybus.Attempt) { o.note(saidLost, a) }

// trouble notes an error that the bus met. Those of a process that gets no time
// from the machine are no fault of anybody.
func (o outcomes) trouble(what string, err error) {
	switch {
	case errors.Is(err, relaybus.ErrTimeout):
		o.log.say(entry{What: saidStall, Text: what + ": " + err.Error()})
	case err != nil:
		o.log.say(entry{What: saidTrouble, Text: what + ": " + err.Error()})
	}
}

func (o outcomes) OnClaimed(c relaybus.Claimed)   { o.trouble("claim", c.Err) }
func (o outcomes) OnSettled(c relaybus.StoreCall) { o.trouble("settle", c.Err) }
func (o outcomes) OnRenewed(c relaybus.StoreCall) { o.trouble("renew", c.Err) }
