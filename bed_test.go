package relaybus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

var errBoom = errors.New("boom")

type order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

func orderPlaced() relaybus.EventType[order] { return relaybus.Define[order]("order.placed.v1") }

// quiet is a configuration that logs nothing.
func quiet() relaybus.Config {
	return relaybus.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// bed is a bus over a memory store that is watched, with everything that its
// hooks were told.
type bed struct {
	*relaybus.Bus
	t     *testing.T
	store *probe
	seen  *record
}

// newBed makes a bus. change, when not nil, changes its configuration.
func newBed(t *testing.T, change func(*relaybus.Config), handlers ...relaybus.Handler) *bed {
	t.Helper()
	return newBedOn(t, memstore.New(memstore.Config{History: true}), change, handlers...)
}

func newBedOn(t *testing.T, s *memstore.Store, change func(*relaybus.Config), handlers ...relaybus.Handler) *bed {
	t.Helper()
	b := &bed{t: t, store: &probe{Store: s}, seen: &record{}}
	cfg := quiet()
	cfg.Hooks = []relaybus.Hook{b.seen}
	cfg.Retry = relaybus.RetryPolicy{Base: time.Second, NoJitter: true}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.Bus, err = relaybus.New(b.store, cfg); err != nil {
		t.Fatalf("New: %v", err)
	}
	if err := b.Subscribe(handlers...); err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return b
}

// start starts the bus until the end of the test.
func (b *bed) start() *bed {
	b.t.Helper()
	if err := b.Start(b.t.Context()); err != nil {
		b.t.Fatalf("Start: %v", err)
	}
	b.t.Cleanup(func() {
		err := b.Stop(context.WithoutCancel(b.t.Context()))
		if err != nil && !errors.Is(err, relaybus.ErrStopped) {
			b.t.Errorf("Stop: %v", err)
		}
	})
	return b
}

// publish publishes in a transaction.
func (b *bed) publish(messages ...relaybus.Message) {
	b.t.Helper()
	if err := b.tryPublish(messages...); err != nil {
		b.t.Fatalf("publish: %v", err)
	}
}

func (b *bed) tryPublish(messages ...relaybus.Message) error {
	return b.Transaction(b.t.Context(), func(ctx context.Context) error { return b.Publish(ctx, messages...) })
}

func (b *bed) drain() int {
	b.t.Helper()
	n, err := b.Drain(b.t.Context())
	if err != nil {
		b.t.Fatalf("Drain: %v", err)
	}
	return n
}

// list returns the deliveries of a status, the oldest event first.
func (b *bed) list(f relaybus.Filter) []relaybus.Delivery {
	b.t.Helper()
	page, err := b.ListDeliveries(b.t.Context(), f, relaybus.Page{Limit: 1000})
	if err != nil {
		b.t.Fatalf("ListDeliveries: %v", err)
	}
	slices.Reverse(page.Deliveries)
	return page.Deliveries
}

// only returns the one delivery that the filter selects.
func (b *bed) only(f relaybus.Filter) relaybus.Delivery {
	b.t.Helper()
	list := b.list(f)
	if len(list) != 1 {
		b.t.Fatalf("%d deliveries match %+v, want 1: %+v", len(list), f, list)
	}
	return list[0]
}

func (b *bed) stats() relaybus.Stats {
	b.t.Helper()
	stats, err := b.Statistics(b.t.Context())
	if err != nil {
		b.t.Fatalf("Statistics: %v", err)
	}
	return stats
}

// raw is a message with an id.
func raw(id string, options ...relaybus.PublishOption) relaybus.Message {
	return relaybus.Raw("thing.done", json.RawMessage(`{}`), append(options, relaybus.ID(id))...)
}

// things is a handler of those messages.
func things(id string, handle relaybus.HandlerFunc, options ...relaybus.HandlerOption) relaybus.Handler {
	return relaybus.Handle(id, []string{"thing.done"}, handle, options...)
}

// desk lets a test decide when and how handlers return.
type desk struct {
	t     *testing.T
	calls chan *call
}

type call struct {
	ctx   context.Context //nolint:containedctx // the test looks at it
	event *relaybus.RawEvent
	reply chan error
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	return &desk{t: t, calls: make(chan *call, 10_000)}
}

func (d *desk) handle(ctx context.Context, e *relaybus.RawEvent) error {
	c := &call{ctx: ctx, event: e, reply: make(chan error)}
	d.calls <- c
	return <-c.reply
}

// heed is handle that returns when its context ends.
func (d *desk) heed(ctx context.Context, e *relaybus.RawEvent) error {
	c := &call{ctx: ctx, event: e, reply: make(chan error, 1)}
	d.calls <- c
	select {
	case err := <-c.reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// next is the next call, for which it waits up to an hour of virtual time.
func (d *desk) next() *call {
	d.t.Helper()
	select {
	case c := <-d.calls:
		return c
	case <-time.After(time.Hour):
		d.t.Fatal("no handler was called")
		return nil
	}
}

// idle fails if a handler was called that nobody asked for.
func (d *desk) idle() {
	d.t.Helper()
	synctest.Wait()
	select {
	case c := <-d.calls:
		d.t.Fatalf("handler %s was called with %s", c.event.Handler, c.event.ID)
	default:
	}
}

// record is a hook that keeps what it was told.
type record struct {
	mu    sync.Mutex
	lines []string
	// errs has the errors of attempts.
	errs []error
}

func (r *record) add(err error, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// took returns the lines since the last time, and forgets them.
func (r *record) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func (r *record) count(line string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, l := range r.lines {
		if l == line {
			n++
		}
	}
	return n
}

func (r *record) lastErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) == 0 {
		return nil
	}
	return r.errs[len(r.errs)-1]
}

func (r *record) OnPublished(_ context.Context, p relaybus.Published) {
	ids := make([]string, len(p.Events))
	for i, e := range p.Events {
		ids[i] = e.ID
	}
	r.add(nil, "published %v %d %s", ids, p.Deliveries, p.Outcome)
}

func (r *record) OnUnhandled(_ context.Context, e relaybus.EventInfo) {
	r.add(nil, "unhandled %s", e.ID)
}
func (r *record) OnStarted(a relaybus.Attempt)   { r.attempt("started", a) }
func (r *record) OnSucceeded(a relaybus.Attempt) { r.attempt("succeeded", a) }
func (r *record) OnRetried(a relaybus.Attempt)   { r.attempt("retried", a) }
func (r *record) OnBuried(a relaybus.Attempt)    { r.attempt("buried", a) }
func (r *record) OnReleased(a relaybus.Attempt)  { r.attempt("released", a) }
func (r *record) OnLeaseLost(a relaybus.Attempt) { r.attempt("lost", a) }

func (r *record) attempt(what string, a relaybus.Attempt) {
	r.add(a.Err, "%s %s %s %d", what, a.Handler, a.Event.ID, a.Number)
}

// op names an operation of the store.
type op string

const (
	opSetup      op = "setup"
	opTransact   op = "transact"
	opAppend     op = "append"
	opClaim      op = "claim"
	opSettle     op = "settle"
	opExtend     op = "extend"
	opRelinquish op = "relinquish"
	opCompleteTx op = "complete in transaction"
	opHandlers   op = "handlers"
	opPurge      op = "purge"
)

// probe is a memory store that counts calls and fails on demand.
type probe struct {
	*memstore.Store

	mu     sync.Mutex
	counts map[op]int
	deaf   bool
	// before fails a call instead of making it, after fails one whose work is
	// done.
	before, after map[op]func(ctx context.Context) error
	claimed       func(r store.ClaimRequest, result *store.ClaimResult)
	settled       func(list []store.Settlement, ok []bool) []bool
}

func (p *probe) count(o op) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[o]
}

func (p *probe) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = nil
}

func (p *probe) failBefore(o op, f func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.before == nil {
		p.before = make(map[op]func(context.Context) error)
	}
	p.before[o] = f
}

func (p *probe) failAfter(o op, f func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == nil {
		p.after = make(map[op]func(context.Context) error)
	}
	p.after[o] = f
}

// times returns a fault that happens n times.
func times(n int, err error) func(context.Context) error {
	return func(context.Context) error {
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}

func unavailable() error { return store.NewError("fault", store.ErrUnavailable, "", nil) }

func unknown() error {
	return &store.Error{Op: "fault", Class: store.ErrUnavailable, Also: store.ErrOutcomeUnknown}
}

func (p *probe) enter(ctx context.Context, o op) error {
	p.mu.Lock()
	if p.counts == nil {
		p.counts = make(map[op]int)
	}
	p.counts[o]++
	f := p.before[o]
	p.mu.Unlock()
	if f != nil {
		return f(ctx)
	}
	return nil
}

func (p *probe) leave(ctx context.Context, o op) error {
	p.mu.Lock()
	f := p.after[o]
	p.mu.Unlock()
	if f != nil {
		return f(ctx)
	}
	return nil
}

func (p *probe) call(ctx context.Context, o op, f func() error) error {
	if err := p.enter(ctx, o); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return p.leave(ctx, o)
}

func (p *probe) Setup(ctx context.Context) error {
	return p.call(ctx, opSetup, func() error { return p.Store.Setup(ctx) })
}

func (p *probe) Transact(ctx context.Context, o store.TxOptions, fn func(ctx context.Context, tx store.Tx) error) error {
	return p.call(ctx, opTransact, func() error { return p.Store.Transact(ctx, o, fn) })
}

func (p *probe) Append(ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time) (list []store.Appended, err error) {
	err = p.call(ctx, opAppend, func() error {
		list, err = p.Store.Append(ctx, tx, events, now)
		return err
	})
	return list, err
}

func (p *probe) Claim(ctx context.Context, r store.ClaimRequest) (result store.ClaimResult, err error) {
	err = p.call(ctx, opClaim, func() error {
		result, err = p.Store.Claim(ctx, r)
		if p.claimed != nil && err == nil {
			p.claimed(r, &result)
		}
		return err
	})
	return result, err
}

func (p *probe) Settle(ctx context.Context, owner string, list []store.Settlement, now time.Time) (ok []bool, err error) {
	err = p.call(ctx, opSettle, func() error {
		ok, err = p.Store.Settle(ctx, owner, list, now)
		if p.settled != nil && err == nil {
			ok = p.settled(list, ok)
		}
		return err
	})
	return ok, err
}

func (p *probe) Extend(ctx context.Context, owner string, leases []store.Lease, now time.Time, d time.Duration) (ok []bool, err error) {
	err = p.call(ctx, opExtend, func() error {
		ok, err = p.Store.Extend(ctx, owner, leases, now, d)
		return err
	})
	return ok, err
}

func (p *probe) Relinquish(ctx context.Context, owner string, now time.Time) error {
	return p.call(ctx, opRelinquish, func() error { return p.Store.Relinquish(ctx, owner, now) })
}

func (p *probe) CompleteTx(ctx context.Context, tx store.Tx, owner string, l store.Lease, now time.Time) error {
	return p.call(ctx, opCompleteTx, func() error { return p.Store.CompleteTx(ctx, tx, owner, l, now) })
}

func (p *probe) Handlers(ctx context.Context) (list []store.HandlerEntry, err error) {
	err = p.call(ctx, opHandlers, func() error {
		list, err = p.Store.Handlers(ctx)
		return err
	})
	return list, err
}

func (p *probe) Purge(ctx context.Context, r store.PurgeRequest) (result store.PurgeResult, err error) {
	err = p.call(ctx, opPurge, func() error {
		result, err = p.Store.Purge(ctx, r)
		return err
	})
	return result, err
}

// deaf takes the store's own wake-up signal away, as for a store without one.
func deaf(b *bed) { b.store.deaf = true }

func (p *probe) Wake(ctx context.Context, signal func()) error {
	if p.deaf {
		<-ctx.Done()
		return nil
	}
	return p.Store.Wake(ctx, signal)
}

// trail keeps what ran, in order.
type trail struct {
	mu   sync.Mutex
	list []string
}

func (r *trail) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, text)
}

// took returns what ran since the last time.
func (r *trail) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

func (r *trail) handle(_ context.Context, e *relaybus.RawEvent) error {
	r.add(e.ID)
	return nil
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }
