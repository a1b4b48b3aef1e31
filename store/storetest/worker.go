package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// workerVariable is the environment variable that makes the test binary a
// worker process. It holds a script.
const workerVariable = "RELAYBUS_STORETEST_WORKER"

// Worker is how a worker process opens the database that its parent tests. The
// function of [Database.Command] passes the location on in the environment.
type Worker struct {
	// Open opens the database. It doesn't call Setup.
	Open func(o Options) (store.Store, error)

	// Effect is that of [Database]; nil if it has none.
	Effect func(ctx context.Context, tx store.Tx, id string) error

	// Arm makes the store call crash when it passes the crash point for the nth
	// time (from 1). It is called after Open and before any other call. It may
	// be nil when the backend has no [Backend.CrashPoints].
	Arm func(s store.Store, point string, nth int, crash func()) error
}

// IsWorker reports whether this process was started as a worker. A backend's
// TestMain asks first of all, and then calls [WorkerMain] instead of running
// tests.
func IsWorker() bool { return os.Getenv(workerVariable) != "" }

// WorkerMain does what the parent wants, and returns the exit code. What it did
// it tells on the standard output, line by line, each before the next step.
func WorkerMain(w Worker) int {
	if err := runWorker(w, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

// script is what a worker process does.
type script struct {
	// Role is setup, publish or work.
	Role     string
	Owner    string
	Handlers []string
	// Prefix, Events and Keys describe what a publisher publishes; Keys is 0
	// for events without a key.
	Prefix string
	Events int
	Keys   int
	// Batch is the limit of a claim.
	Batch int
	// Transactional completes in a transaction with an effect.
	Transactional bool
	// Now is the time of the whole life of the worker, Lease how long it leases.
	Now   time.Time
	Lease time.Duration
	// Crash is the point at which the worker kills itself, at the CrashAt-th
	// time: "before <call>", "after <call>", "in transaction", or one of the
	// store's own.
	Crash   string
	CrashAt int
	// Hang stops at the crash point instead of killing itself: it writes a line
	// and waits for the parent to kill it or to close its standard input.
	Hang    bool
	Options Options
}

type worker struct {
	Worker
	script
	out    io.Writer
	passed int
}

func runWorker(w Worker, out io.Writer) error {
	var s script
	if err := json.Unmarshal([]byte(os.Getenv(workerVariable)), &s); err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	db, err := w.Open(s.Options)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if closer, ok := db.(io.Closer); ok {
		defer func() { _ = closer.Close() }()
	}
	p := &worker{Worker: w, script: s, out: out}
	if s.Crash != "" && !ownPoint(s.Crash) {
		if w.Arm == nil {
			return errors.New("the backend lists crash points and cannot arm them")
		}
		if err := w.Arm(db, s.Crash, s.CrashAt, p.die); err != nil {
			return fmt.Errorf("arm %s: %w", s.Crash, err)
		}
	}
	ctx := context.Background()
	switch s.Role {
	case "setup":
		p.point("before setup")
		err = db.Setup(ctx)
		p.point("after setup")
	case "publish":
		err = p.publish(ctx, db)
	case "work":
		err = p.work(ctx, db)
	default:
		err = fmt.Errorf("unknown role %q", s.Role)
	}
	if err == nil {
		p.say("done")
	}
	return err
}

func ownPoint(name string) bool {
	return strings.HasPrefix(name, "before ") || strings.HasPrefix(name, "after ") || strings.HasPrefix(name, "in ")
}

func (p *worker) say(words ...any) { _, _ = fmt.Fprintln(p.out, words...) }

// point is one of the suite's own crash points.
func (p *worker) point(name string) {
	if name != p.Crash {
		return
	}
	if p.passed++; p.passed == p.CrashAt {
		p.die()
	}
}

// die kills the process as nothing can stop it, or hangs.
func (p *worker) die() {
	if p.Hang {
		p.say("hangs")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

func (p *worker) publish(ctx context.Context, s store.Store) error {
	for i := range p.Events {
		id := fmt.Sprintf("%s-%d", p.Prefix, i)
		key := ""
		if p.Keys > 0 && i%4 != 0 {
			key = numberedName("k", i%p.Keys)
		}
		p.say("publishes", id)
		p.point("before publish")
		err := s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			if p.Effect != nil {
				if err := p.Effect(ctx, tx, id); err != nil {
					return err
				}
			}
			_, err := s.Append(ctx, tx, []store.NewEvent{newEvent(id, key, p.Now, p.Handlers...)}, p.Now)
			p.point("in publish")
			return err
		})
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		p.point("after publish")
		p.say("published", id)
	}
	return nil
}

func (p *worker) work(ctx context.Context, s store.Store) error {
	idle := 0
	for idle < 3 {
		p.point("before claim")
		r := request(p.Owner, p.Now, p.Batch, p.Handlers...)
		r.Lease = p.Lease
		result, err := s.Claim(ctx, r)
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		for _, c := range result.Deliveries {
			p.say("runs", c.Event.ID, c.Lease.Handler, c.Attempt)
		}
		p.point("after claim")
		if len(result.Deliveries) == 0 {
			idle++
			continue
		}
		idle = 0
		if err := p.settle(ctx, s, result.Deliveries); err != nil {
			return err
		}
	}
	p.point("before relinquish")
	if err := s.Relinquish(ctx, p.Owner, p.Now); err != nil {
		return fmt.Errorf("relinquish: %w", err)
	}
	return nil
}

func (p *worker) settle(ctx context.Context, s store.Store, claimed []store.Claimed) error {
	if !p.Transactional {
		var list []store.Settlement
		for _, c := range claimed {
			list = append(list, completion(c))
		}
		p.point("before settle")
		ok, err := s.Settle(ctx, p.Owner, list, p.Now)
		if err != nil {
			return fmt.Errorf("settle: %w", err)
		}
		p.point("after settle")
		for i, c := range claimed {
			if ok[i] {
				p.say("completed", c.Event.ID, c.Lease.Handler)
			} else {
				p.say("lost", c.Event.ID, c.Lease.Handler)
			}
		}
		return nil
	}
	for _, c := range claimed {
		p.point("before settle")
		err := s.Transact(ctx, store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
			if err := p.Effect(ctx, tx, c.Event.ID+"/"+c.Lease.Handler); err != nil {
				return err
			}
			p.point("in settle")
			err := s.CompleteTx(ctx, tx, p.Owner, c.Lease, p.Now)
			p.point("in transaction")
			return err
		})
		switch {
		case errors.Is(err, store.ErrLeaseLost):
			p.say("lost", c.Event.ID, c.Lease.Handler)
			continue
		case err != nil:
			return fmt.Errorf("complete in a transaction: %w", err)
		}
		p.point("after settle")
		p.say("completed", c.Event.ID, c.Lease.Handler)
	}
	return nil
}
