package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// term is the lease that cases use.
const term = 30 * time.Second

// plenty is a limit that no case reaches.
const plenty = 100_000

// bed is the test bed of one case: a database, one store instance on it, and
// the time.
type bed struct {
	t       *testing.T
	backend Backend
	db      Database
	options Options
	s       store.Store
	now     time.Time
}

func newBed(t *testing.T, backend Backend) *bed {
	t.Helper()
	return newBedWith(t, backend, Options{})
}

func newBedWith(t *testing.T, backend Backend, o Options) *bed {
	t.Helper()
	b := &bed{t: t, backend: backend, db: backend.New(t), options: o, now: epoch()}
	b.s = b.open()
	if err := b.s.Setup(t.Context()); err != nil {
		t.Fatalf("setup: %v", err)
	}
	return b
}

// epoch is when cases begin.
func epoch() time.Time { return time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC) }

// fresh returns a bed on another database of the same backend.
func (b *bed) fresh(t *testing.T, o Options) *bed {
	t.Helper()
	return newBedWith(t, b.backend, o)
}

// open returns another store instance on the same database.
func (b *bed) open() store.Store {
	b.t.Helper()
	return b.db.Open(b.t, b.options)
}

func (b *bed) ctx() context.Context { return b.t.Context() }

func (b *bed) pass(d time.Duration) { b.now = b.now.Add(d) }

// event is an event that is due now, for the handlers.
func (b *bed) event(id, key string, handlers ...string) store.NewEvent {
	return newEvent(id, key, b.now, handlers...)
}

func newEvent(id, key string, now time.Time, handlers ...string) store.NewEvent {
	e := store.NewEvent{
		Event: store.Event{
			ID: id, Type: "order.placed.v1", Source: "orders", Key: key, Payload: []byte(`{"id":"` + id + `"}`), CreatedAt: now,
		},
		DueAt: now,
	}
	for _, h := range handlers {
		e.Handlers = append(e.Handlers, store.Handler{ID: h})
	}
	return e
}

// numbered returns n events of a key, or without one: prefix-0, prefix-1, …
func (b *bed) numbered(prefix string, n int, key string, handlers ...string) []store.NewEvent {
	events := make([]store.NewEvent, n)
	for i := range events {
		events[i] = b.event(fmt.Sprintf("%s-%d", prefix, i), key, handlers...)
	}
	return events
}

// publish appends the events in one transaction of the store.
func publish(ctx context.Context, s store.Store, now time.Time, events ...store.NewEvent) ([]store.Appended, error) {
	var appended []store.Appended
	err := s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		var err error
		appended, err = s.Append(ctx, tx, events, now)
		return err
	})
	return appended, err
}

func (b *bed) publish(events ...store.NewEvent) []store.Appended {
	b.t.Helper()
	appended, err := publish(b.ctx(), b.s, b.now, events...)
	if err != nil {
		b.t.Fatalf("publish: %v", err)
	}
	if len(appended) != len(events) {
		b.t.Fatalf("%d results for %d events", len(appended), len(events))
	}
	return appended
}

// publishMany appends the events in several transactions of a moderate size.
func (b *bed) publishMany(events []store.NewEvent) {
	b.t.Helper()
	for part := range slices.Chunk(events, 1000) {
		b.publish(part...)
	}
}

// request asks for up to limit deliveries of each handler, and in all.
func request(owner string, now time.Time, limit int, handlers ...string) store.ClaimRequest {
	r := store.ClaimRequest{Owner: owner, Limit: limit, Now: now, Lease: term}
	for _, h := range handlers {
		r.Handlers = append(r.Handlers, store.HandlerLimit{Handler: store.Handler{ID: h}, Limit: limit})
	}
	return r
}

func (b *bed) claim(owner string, limit int, handlers ...string) []store.Claimed {
	b.t.Helper()
	return b.claimOn(b.s, request(owner, b.now, limit, handlers...))
}

func (b *bed) claimOn(s store.Store, r store.ClaimRequest) []store.Claimed {
	b.t.Helper()
	result, err := s.Claim(b.ctx(), r)
	if err != nil {
		b.t.Fatalf("claim for %s: %v", r.Owner, err)
	}
	if len(result.Deliveries) > r.Limit {
		b.t.Fatalf("a claim of %d brought %d deliveries", r.Limit, len(result.Deliveries))
	}
	return result.Deliveries
}

// one claims and wants exactly one delivery, that of the event.
func (b *bed) one(owner, handler, eventID string) store.Claimed {
	b.t.Helper()
	got := b.claim(owner, plenty, handler)
	if len(got) != 1 || got[0].Event.ID != eventID {
		b.t.Fatalf("claim for %s brought %v, want only %s", owner, names(got), eventID)
	}
	return got[0]
}

// none claims and wants nothing.
func (b *bed) none(owner string, handlers ...string) {
	b.t.Helper()
	if got := b.claim(owner, plenty, handlers...); len(got) != 0 {
		b.t.Fatalf("claim for %s brought %v, want nothing", owner, names(got))
	}
}

func completion(c store.Claimed) store.Settlement {
	return store.Settlement{Lease: c.Lease, Action: store.Complete}
}

func reschedule(c store.Claimed, dueAt time.Time) store.Settlement {
	return store.Settlement{Lease: c.Lease, Action: store.Reschedule, DueAt: dueAt, Error: "try again"}
}

func release(c store.Claimed) store.Settlement {
	return store.Settlement{Lease: c.Lease, Action: store.Release}
}

func bury(c store.Claimed, hold bool) store.Settlement {
	return store.Settlement{Lease: c.Lease, Action: store.Bury, Error: "given up", Hold: hold}
}

func (b *bed) settleOn(s store.Store, owner string, list ...store.Settlement) []bool {
	b.t.Helper()
	ok, err := s.Settle(b.ctx(), owner, list, b.now)
	if err != nil {
		b.t.Fatalf("settle for %s: %v", owner, err)
	}
	if len(ok) != len(list) {
		b.t.Fatalf("%d results for %d settlements", len(ok), len(list))
	}
	return ok
}

// settle wants every settlement to be applied.
func (b *bed) settle(owner string, list ...store.Settlement) {
	b.t.Helper()
	ok := b.settleOn(b.s, owner, list...)
	for i, s := range list {
		if !ok[i] {
			b.t.Fatalf("%s of %s for %s was not applied", s.Action, s.Lease.EventID, owner)
		}
	}
}

func (b *bed) complete(owner string, claimed ...store.Claimed) {
	b.t.Helper()
	list := make([]store.Settlement, len(claimed))
	for i, c := range claimed {
		list[i] = completion(c)
	}
	b.settle(owner, list...)
}

// lost wants no settlement of the owner w to be applied.
func (b *bed) lost(list ...store.Settlement) {
	b.t.Helper()
	ok := b.settleOn(b.s, "w", list...)
	for i, s := range list {
		if ok[i] {
			b.t.Errorf("%s of %s was applied under a lost lease", s.Action, s.Lease.EventID)
		}
	}
}

// dead publishes an event for a handler, claims it and buries it.
func (b *bed) dead(id, key, handler string, hold bool) {
	b.t.Helper()
	b.publish(b.event(id, key, handler))
	b.settle("undertaker", bury(b.one("undertaker", handler, id), hold))
	b.relinquish("undertaker")
}

func (b *bed) relinquish(owner string) {
	b.t.Helper()
	if err := b.s.Relinquish(b.ctx(), owner, b.now); err != nil {
		b.t.Fatalf("relinquish %s: %v", owner, err)
	}
}

// list returns all deliveries that the filter selects, page by page.
func (b *bed) list(f store.Filter) []store.Delivery {
	b.t.Helper()
	all, err := listAll(b.ctx(), b.s, f, store.MaxPageSize)
	if err != nil {
		b.t.Fatalf("list: %v", err)
	}
	return all
}

func listAll(ctx context.Context, s store.Store, f store.Filter, limit int) ([]store.Delivery, error) {
	var all []store.Delivery
	page := store.Page{Limit: limit}
	for {
		got, err := s.List(ctx, f, page)
		if err != nil {
			return nil, err
		}
		if len(got.Deliveries) > limit {
			return nil, fmt.Errorf("a page of %d has %d rows", limit, len(got.Deliveries))
		}
		all = append(all, got.Deliveries...)
		if got.Next == "" {
			return all, nil
		}
		if got.Next == page.Cursor {
			return nil, errors.New("the cursor of the next page is that of this one")
		}
		page.Cursor = got.Next
	}
}

// delivery returns the delivery, which must exist.
func (b *bed) delivery(eventID, handler string) store.Delivery {
	b.t.Helper()
	got := b.list(store.Filter{EventID: eventID, Handler: handler})
	if len(got) != 1 {
		b.t.Fatalf("%d deliveries of %s for %s, want 1", len(got), eventID, handler)
	}
	return got[0]
}

// counts checks the numbers of pending, running and dead deliveries.
func (b *bed) counts(pending, running, dead int64) {
	b.t.Helper()
	stats, err := b.s.Stats(b.ctx(), b.now)
	if err != nil {
		b.t.Fatalf("stats: %v", err)
	}
	if stats.Pending != pending || stats.Running != running || stats.Dead != dead {
		b.t.Fatalf("%d pending, %d running, %d dead; want %d, %d, %d",
			stats.Pending, stats.Running, stats.Dead, pending, running, dead)
	}
}

// names lists claimed deliveries as event/handler, in the order of the claim.
func names(claimed []store.Claimed) []string {
	list := make([]string, len(claimed))
	for i, c := range claimed {
		list[i] = c.Event.ID + "/" + c.Lease.Handler
	}
	return list
}

// eventIDs lists the event ids of claimed deliveries, sorted.
func eventIDs(claimed []store.Claimed) []string {
	list := make([]string, len(claimed))
	for i, c := range claimed {
		list[i] = c.Event.ID
	}
	slices.Sort(list)
	return list
}

func (b *bed) wantEvents(claimed []store.Claimed, ids ...string) {
	b.t.Helper()
	slices.Sort(ids)
	if got := eventIDs(claimed); !slices.Equal(got, ids) {
		b.t.Fatalf("claimed %v, want %v", got, ids)
	}
}

// find returns the claimed delivery of an event.
func (b *bed) find(claimed []store.Claimed, eventID string) store.Claimed {
	b.t.Helper()
	for _, c := range claimed {
		if c.Event.ID == eventID {
			return c
		}
	}
	b.t.Fatalf("%s is not among %v", eventID, names(claimed))
	return store.Claimed{}
}

// wantError wants a *store.Error that matches all classes.
func (b *bed) wantError(err error, classes ...error) {
	b.t.Helper()
	if problem := errorProblem(err, classes...); problem != "" {
		b.t.Errorf("%s", problem)
	}
}

// errorProblem says what is wrong with the error of a store, or "".
func errorProblem(err error, classes ...error) string {
	if err == nil {
		return fmt.Sprintf("no error, want %v", classes)
	}
	var typed *store.Error
	if !errors.As(err, &typed) {
		return fmt.Sprintf("%T (%v) is not a *store.Error", err, err)
	}
	if typed.Class == nil {
		return fmt.Sprintf("the error %v has no class", err)
	}
	if typed.Op == "" || strings.ToLower(typed.Op[:1]) != typed.Op[:1] {
		return fmt.Sprintf("the step of the error is %q, not a step in lower case", typed.Op)
	}
	for _, class := range classes {
		if !errors.Is(err, class) {
			return fmt.Sprintf("error %q does not match %q", err, class)
		}
	}
	return ""
}

// oneOf wants a *store.Error that matches one of the classes.
func (b *bed) oneOf(err error, classes ...error) {
	b.t.Helper()
	b.wantError(err)
	for _, class := range classes {
		if errors.Is(err, class) {
			return
		}
	}
	b.t.Errorf("error %v matches none of %v", err, classes)
}

// laneMates returns n ids that fall into the lane.
func laneMates(number uint8, prefix string, n int) []string {
	ids := make([]string, 0, n)
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprintf("%s%d", prefix, i); lane.Of(id, id) == number {
			ids = append(ids, id)
		}
	}
	return ids
}
