package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Sizes of the claim case.
const (
	claimName      = "claim"
	firstClaimName = "first claim of an owner"
	// nextClaims is how many claims follow the first one of each owner.
	nextClaims = 4
	claimLease = time.Minute
)

// backlog is a store with deliveries that wait.
type backlog struct {
	name string
	*claimStore

	address string
	// ready is how many can be claimed.
	ready int
	// waiting is how many there are.
	waiting int
	owners  int
}

// claimCase measures the store's claims, without a bus, in front of backlogs of
// several sizes. The owners take turns, one on each backlog.
func claimCase(ctx context.Context, b *bench) (err error) {
	if len(b.only) > 0 && !slices.Contains(b.only, relaybusName) {
		return nil
	}
	var list []*backlog
	defer func() {
		for _, l := range list {
			err = errors.Join(err, l.close(), b.site.remove(context.WithoutCancel(ctx), l.address))
		}
	}()
	for _, n := range b.backlogs {
		l, err := b.newBacklog(ctx, waitingName(n), n, 0)
		if err != nil {
			return err
		}
		list = append(list, l)
	}
	l, err := b.newBacklog(ctx, fmt.Sprintf("%d waiting and %d behind one blocked key", b.backlogs[0], b.blocked), b.backlogs[0], b.blocked)
	if err != nil {
		return err
	}
	list = append(list, l)
	for _, limit := range []int{10, 100} {
		b.logf("claim: limit %d", limit)
		for range b.claims {
			for _, l := range list {
				if err := b.claimOnce(ctx, l, limit); err != nil {
					return fmt.Errorf("%s, limit %d: %w", l.name, limit, err)
				}
			}
		}
	}
	for _, l := range list {
		stats, err := l.Stats(ctx, time.Now())
		if err != nil {
			return err
		}
		if stats.Pending != int64(l.waiting) || stats.Running != 0 || stats.Dead != 0 {
			return fmt.Errorf("%s: %d pending, %d running and %d dead are left", l.name, stats.Pending, stats.Running, stats.Dead)
		}
		b.report.checkedAll(claimName, l.name)
	}
	return nil
}

func waitingName(n int) string { return fmt.Sprintf("%d waiting", n) }

// newBacklog fills a store with deliveries of one handler: ready ones without a
// key, and others behind one of their key that is not due.
func (b *bench) newBacklog(ctx context.Context, name string, ready, blocked int) (*backlog, error) {
	b.logf("claim: loading %s", name)
	address, err := b.site.create(ctx, claimName)
	if err != nil {
		return nil, err
	}
	l := &backlog{name: name, address: address, ready: ready, waiting: ready}
	if l.claimStore, err = b.platform.openStore(ctx, address); err != nil {
		return nil, err
	}
	err = l.fill(ctx, blocked)
	// The store is closed meanwhile, as what is at rest is nobody's.
	if err := errors.Join(err, l.close()); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := b.site.rest(ctx, address); err != nil {
		return nil, err
	}
	l.claimStore, err = b.platform.openStore(ctx, address)
	return l, err
}

func (l *backlog) fill(ctx context.Context, blocked int) error {
	now := time.Now()
	if err := l.append(ctx, "ready", "", l.ready, now, now.Add(-time.Minute)); err != nil || blocked == 0 {
		return err
	}
	l.waiting += blocked + 1
	return errors.Join(
		l.append(ctx, "head", "one", 1, now, now.Add(24*time.Hour)),
		// Due before everything else, so that claims meet them first.
		l.append(ctx, "blocked", "one", blocked, now, now.Add(-2*time.Minute)))
}

// nameOfClaim names the n-th claim of the current owner. The very first one in
// front of a blocked key parks what waits behind it, once.
func (l *backlog) nameOfClaim(n int) string {
	switch {
	case n > 0:
		return "next claim of an owner"
	case l.owners == 1 && l.waiting > l.ready:
		return "the claim that parks"
	default:
		return firstClaimName
	}
}

func claimHandler() store.Handler { return store.Handler{ID: "handler-0"} }

// append adds n events with one delivery each.
func (l *backlog) append(ctx context.Context, prefix, key string, n int, now, due time.Time) error {
	const batch = 5000
	payload := []byte(`{"number":1,"customer":"customer-1","cents":100,"note":"leave it at the door, ring twice"}`)
	for first := 0; n > 0; first, n = first+batch, n-batch {
		events := make([]store.NewEvent, min(batch, n))
		for i := range events {
			events[i] = store.NewEvent{
				Event: store.Event{
					ID: fmt.Sprintf("%s-%08d", prefix, first+i), Type: eventName, Source: "bench", Key: key,
					Payload: payload, CreatedAt: now,
				},
				Handlers: []store.Handler{claimHandler()},
				DueAt:    due.Add(time.Duration(first+i) * time.Microsecond),
			}
		}
		if err := l.add(ctx, events); err != nil {
			return err
		}
	}
	return nil
}

// claimOnce measures one owner: its first claim, for which it takes lanes, and
// those that follow. What it claims is given back between them, so that the
// backlog stays as it is.
func (b *bench) claimOnce(ctx context.Context, l *backlog, limit int) error {
	l.owners++
	owner := fmt.Sprintf("owner-%d", l.owners)
	for n := range 1 + nextClaims {
		request := store.ClaimRequest{
			Owner:    owner,
			Handlers: []store.HandlerLimit{{Handler: claimHandler(), Limit: limit}},
			Limit:    limit,
			Now:      time.Now(),
			Lease:    claimLease,
		}
		began := time.Now()
		result, err := l.Claim(ctx, request)
		took := time.Since(began)
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		if got := len(result.Deliveries); got != min(limit, l.ready) {
			return fmt.Errorf("claim %d of %s brought %d", n+1, owner, got)
		}
		b.report.add(measurement{
			Case: claimName, Variant: fmt.Sprintf("%s, limit %d", l.nameOfClaim(n), limit), System: l.name, Unit: "ms",
		}, took.Seconds()*1000)
		settlements := make([]store.Settlement, len(result.Deliveries))
		for i, d := range result.Deliveries {
			settlements[i] = store.Settlement{Lease: d.Lease, Action: store.Release}
		}
		ok, err := l.Settle(ctx, owner, settlements, time.Now())
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		for i := range ok {
			if !ok[i] {
				return fmt.Errorf("release: the lease of %s was lost", settlements[i].Lease.EventID)
			}
		}
	}
	if err := l.Relinquish(ctx, owner, time.Now()); err != nil {
		return fmt.Errorf("relinquish: %w", err)
	}
	return nil
}
