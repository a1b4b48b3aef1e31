package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func loadCases() []testCase {
	return []testCase{
		{name: "F48 I3 many instances execute each delivery exactly once", run: loadExactlyOnce},
		{name: "S4 I4 order under concurrency with retries", run: loadOrder},
		{name: "S4 S7 S8 I1 I5 order and fencing under faults", run: loadFaults},
		{name: "B12 I3 effects exactly once under faults", needs: needsEffects, run: loadEffects},
		{name: "F48 all restarted at once", run: loadRestart},
	}
}

// watchdog ends a load that makes no progress.
const watchdog = 5 * time.Minute

// load is a number of publishers and workers on several instances of one
// database. The time is shared, and moves with what the workers do.
type load struct {
	b          *bed
	h          *History
	seed       uint64
	instances  int
	publishers int
	workers    int
	events     int // of each publisher
	keys       int
	handlers   []string
	batch      int

	retries       bool // fail, release and bury some
	faults        bool // stall some workers until they are taken over
	transactional bool // complete in transactions, with an effect

	clock atomic.Int64 // milliseconds since epoch
	done  atomic.Bool  // publishers are done
}

// random returns the random numbers of one publisher or worker.
func (l *load) random(who int) *rand.Rand {
	return rand.New(rand.NewPCG(l.seed, uint64(who))) //nolint:gosec // Who is small and not negative.
}

func (l *load) now() time.Time {
	return epoch().Add(time.Duration(l.clock.Add(1)) * time.Millisecond)
}

func loadExactlyOnce(b *bed) {
	l := &load{
		b: b, seed: 48, instances: 6, publishers: 3, workers: 8, events: 60, keys: 5, handlers: []string{"h", "g"}, batch: 9,
	}
	l.run()
	if want := l.publishers * l.events * len(l.handlers); l.h.Executions() != want {
		b.t.Errorf("%d executions of %d deliveries without a fault", l.h.Executions(), want)
	}
}

func loadOrder(b *bed) {
	(&load{
		b: b, seed: 4, instances: 4, publishers: 4, workers: 6, events: 50, keys: 3, handlers: []string{"h", "g"}, batch: 5, retries: true,
	}).run()
}

func loadFaults(b *bed) {
	(&load{
		b: b, seed: 8, instances: 4, publishers: 3, workers: 6, events: 40, keys: 4, handlers: []string{"h", "g"}, batch: 6,
		retries: true, faults: true,
	}).run()
}

func loadEffects(b *bed) {
	(&load{
		b: b, seed: 12, instances: 3, publishers: 2, workers: 4, events: 30, keys: 3, handlers: []string{"h"}, batch: 4,
		faults: true, transactional: true,
	}).run()
}

func loadRestart(b *bed) {
	b.publish(append(b.numbered("e", 120, "", "h"), b.numbered("k", 20, "k", "h")...)...)
	for round := range 3 {
		// All claim at the same instant, and die.
		var group sync.WaitGroup
		errs := make([]error, 6)
		claimed := make([][]store.Claimed, 6)
		for i := range errs {
			s := b.open()
			group.Go(func() {
				result, err := s.Claim(b.ctx(), request(numberedName("w", i), b.now, 5, "h"))
				errs[i], claimed[i] = err, result.Deliveries
			})
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			b.t.Fatalf("round %d: %v", round, err)
		}
		seen := map[string]bool{}
		for _, list := range claimed {
			for _, c := range list {
				if seen[c.Event.ID] {
					b.t.Errorf("round %d: %s was claimed twice", round, c.Event.ID)
				}
				seen[c.Event.ID] = true
			}
		}
		b.pass(term + time.Millisecond)
	}
	for range 60 {
		b.complete("last", b.claim("last", plenty, "h")...)
	}
	b.counts(0, 0, 0)
}

func (l *load) run() {
	l.b.t.Helper()
	l.h = NewHistory()
	l.b.t.Logf("seed %d", l.seed)
	stores := []store.Store{l.b.s}
	for len(stores) < l.instances {
		stores = append(stores, l.b.open())
	}
	// The watchdog is for a store that never finishes; it measures nothing.
	watched, cancel := context.WithTimeoutCause(l.b.ctx(), watchdog, errors.New("I6: deliveries are left that nobody gets"))
	defer cancel()
	ctx, stop := context.WithCancelCause(watched)
	defer stop(nil)
	var publishers, workers sync.WaitGroup
	for p := range l.publishers {
		publishers.Go(func() {
			if err := l.publish(ctx, stores[p%len(stores)], p); err != nil {
				stop(fmt.Errorf("publisher %d: %w", p, err))
			}
		})
	}
	for w := range l.workers {
		workers.Go(func() {
			if err := l.work(ctx, stores[(w+1)%len(stores)], w); err != nil {
				stop(fmt.Errorf("worker %d: %w", w, err))
			}
		})
	}
	publishers.Wait()
	l.done.Store(true)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		l.b.t.Fatalf("load: %v", err)
	}
	for _, d := range l.b.list(store.Filter{}) {
		l.h.Final(d.ID.EventID, d.ID.Handler, d.Status)
	}
	if l.transactional {
		for _, id := range l.b.db.Effects(l.b.t, l.b.s) {
			l.h.Effect(id, "h")
		}
	}
	l.h.Check(l.b.t)
}

// publish publishes events one by one and in small batches, and rolls some back.
func (l *load) publish(ctx context.Context, s store.Store, p int) error {
	random := l.random(p)
	for i := 0; i < l.events; {
		n := min(1+random.IntN(4), l.events-i)
		now := l.now()
		undo := random.IntN(10) == 0
		var events []store.NewEvent
		var publications []Publication
		for range n {
			id := fmt.Sprintf("p%d-%d", p, i)
			if undo {
				id += "-undone" + numberedName("", random.IntN(1_000_000))
			}
			key := ""
			if random.IntN(4) > 0 {
				key = numberedName("k", random.IntN(l.keys))
			}
			e := newEvent(id, key, now, l.handlers...)
			e.Fresh = random.IntN(2) == 0
			events = append(events, e)
			publications = append(publications, l.h.Publish(id, key, l.handlers...))
			i++
		}
		err := s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			if _, err := s.Append(ctx, tx, events, now); err != nil {
				return err
			}
			if undo {
				return errUndo
			}
			return nil
		})
		switch {
		case undo && errors.Is(err, errUndo):
			for _, publication := range publications {
				publication.RolledBack()
			}
			i -= n
		case err != nil:
			return err
		default:
			for _, publication := range publications {
				publication.Committed()
			}
		}
	}
	return nil
}

// work claims and settles until everything is done.
func (l *load) work(ctx context.Context, s store.Store, w int) error {
	random := l.random(1000 + w)
	life := 0
	owner := fmt.Sprintf("w%d.%d", w, life)
	var stalled []*heldDelivery
	for {
		if err := ctx.Err(); err != nil {
			return nil //nolint:nilerr // Another one failed and has said why.
		}
		now := l.now()
		r := request(owner, now, 1+random.IntN(l.batch), l.handlers...)
		if !l.faults {
			r.Lease = 10_000 * time.Hour // The clock moves as fast as idle workers turn.
		}
		result, err := s.Claim(ctx, r)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Another one failed, or the watchdog ended it.
		}
		if l.faults && errors.Is(err, store.ErrLeaseLost) {
			continue // Taken over in the middle of the claim: nothing was handed out.
		}
		if err != nil {
			return err
		}
		var held []*heldDelivery
		for _, c := range result.Deliveries {
			held = append(held, &heldDelivery{c, owner, l.h.Start(c.Event, c.Lease.Handler, c.Attempt)})
		}
		if l.faults && len(held) > 0 && random.IntN(12) == 0 {
			// Stall: the lease ends, somebody takes over, and the results come late.
			for _, d := range held {
				d.run.Fault()
			}
			stalled = append(stalled, held...)
			life++
			owner = fmt.Sprintf("w%d.%d", w, life)
			l.clock.Add(int64((term + time.Second) / time.Millisecond))
			continue
		}
		for _, d := range held {
			if err := l.settle(ctx, s, random, d); err != nil {
				return err
			}
		}
		if len(stalled) > 0 && random.IntN(3) == 0 {
			for _, d := range stalled {
				if err := l.settle(ctx, s, random, d); err != nil {
					return err
				}
			}
			stalled = nil
		}
		if len(held) > 0 {
			continue
		}
		if random.IntN(3) == 0 {
			if err := s.Relinquish(ctx, owner, l.now()); err != nil {
				return err
			}
		}
		if !l.done.Load() {
			continue
		}
		stats, err := s.Stats(ctx, l.now())
		if err != nil {
			return err
		}
		if stats.Pending == 0 && stats.Running == 0 {
			for _, d := range stalled {
				if err := l.settle(ctx, s, random, d); err != nil {
					return err
				}
			}
			return s.Relinquish(ctx, owner, l.now())
		}
		if l.faults {
			l.clock.Add(int64(term / time.Millisecond / 8))
		} else {
			l.clock.Add(200)
		}
	}
}

type heldDelivery struct {
	claimed store.Claimed
	owner   string
	run     *Execution
}

// settle ends one execution in some way, and records what the store made of it.
func (l *load) settle(ctx context.Context, s store.Store, random *rand.Rand, d *heldDelivery) error {
	now := l.now()
	if l.transactional {
		d.run.Returned()
		err := runInTx(ctx, s, l.b.db.Effect, d.owner, d.claimed, now)
		switch {
		case errors.Is(err, store.ErrLeaseLost):
			d.run.Refused()
			return nil
		case err != nil:
			return err
		}
		d.run.Completed()
		return nil
	}
	settlement, ended := completion(d.claimed), d.run.Completed
	if l.retries {
		switch random.IntN(8) {
		case 0, 1:
			settlement, ended = reschedule(d.claimed, now.Add(time.Duration(random.IntN(300))*time.Millisecond)), d.run.Failed
		case 2:
			settlement, ended = release(d.claimed), d.run.Failed
		case 3:
			if d.claimed.Attempt > 2 {
				settlement, ended = bury(d.claimed, false), d.run.Buried
			}
		default:
		}
	}
	d.run.Returned()
	ok, err := s.Settle(ctx, d.owner, []store.Settlement{settlement}, now)
	switch {
	case err != nil:
		return err
	case ok[0]:
		ended()
	case !l.faults:
		return fmt.Errorf("%s of %s was refused without a fault", settlement.Action, d.claimed.Event.ID)
	default:
		d.run.Refused()
	}
	return nil
}
