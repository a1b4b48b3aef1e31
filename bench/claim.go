package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// Sizes of the claim case.
const (
	// nextClaims is how many claims follow the first one of each owner.
	nextClaims = 4
	claimLease = time.Minute
)

// backlog is a store with deliveries that wait.
type backlog struct {
	name  string
	store *sqlite.Store
	// ready is how many can be claimed.
	ready int
	// waiting is how many there are.
	waiting int
	owners  int
}

// claimCase measures the store's claims, without a bus, in front of backlogs of
// several sizes. The owners take turns, one on each backlog.
func claimCase(ctx context.Context, b *bench) (err error) {
	if !b.takesPart(relaybusContender()) {
		return nil
	}
	var list []*backlog
	defer func() {
		for _, l := range list {
			err = errors.Join(err, l.store.Close())
		}
	}()
	for _, n := range b.backlogs {
		l, err := b.newBacklog(ctx, fmt.Sprintf("%d waiting", n), n, 0)
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
		stats, err := l.store.Stats(ctx, time.Now())
		if err != nil {
			return err
		}
		if stats.Pending != int64(l.waiting) || stats.Running != 0 || stats.Dead != 0 {
			return fmt.Errorf("%s: %d pending, %d running and %d dead are left", l.name, stats.Pending, stats.Running, stats.Dead)
		}
		b.report.checkedAll("claim", l.name)
	}
	return nil
}

// newBacklog fills a store with deliveries of one handler: ready ones without a
// key, and others behind one of their key that is not due.
func (b *bench) newBacklog(ctx context.Context, name string, ready, blocked int) (*backlog, error) {
	b.logf("claim: loading %s", name)
	s, err := sqlite.Open(b.newPath("claim"))
	if err != nil {
		return nil, err
	}
	l := &backlog{name: name, store: s, ready: ready, waiting: ready}
	now := time.Now()
	if err := errors.Join(s.Setup(ctx), l.append(ctx, "ready", "", 0, ready, now, now.Add(-time.Minute))); err != nil {
		return nil, errors.Join(fmt.Errorf("load: %w", err), s.Close())
	}
	if blocked == 0 {
		return l, nil
	}
	l.waiting += blocked + 1
	err = errors.Join(
		l.append(ctx, "head", "one", 0, 1, now, now.Add(24*time.Hour)),
		// Due before everything else, so that claims meet them first.
		l.append(ctx, "blocked", "one", 0, blocked, now, now.Add(-2*time.Minute)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load blocked: %w", err), s.Close())
	}
	return l, nil
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
		return "first claim of an owner"
	}
}

func claimHandler() store.Handler { return store.Handler{ID: "handler-0"} }

// append adds n events with one delivery each.
func (l *backlog) append(ctx context.Context, prefix, key string, first, n int, now, due time.Time) error {
	const batch = 5000
	payload := []byte(`{"number":1,"customer":"customer-1","cents":100,"note":"leave it at the door, ring twice"}`)
	for ; n > 0; first, n = first+batch, n-batch {
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
		err := l.store.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			_, err := l.store.Append(ctx, tx, events, now)
			return err
		})
		if err != nil {
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
		result, err := l.store.Claim(ctx, request)
		took := time.Since(began)
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		if got := len(result.Deliveries); got != min(limit, l.ready) {
			return fmt.Errorf("claim %d of %s brought %d", n+1, owner, got)
		}
		b.report.add(measurement{
			Case: "claim", Variant: fmt.Sprintf("%s, limit %d", l.nameOfClaim(n), limit), System: l.name, Unit: "ms",
		}, took.Seconds()*1000)
		settlements := make([]store.Settlement, len(result.Deliveries))
		for i, d := range result.Deliveries {
			settlements[i] = store.Settlement{Lease: d.Lease, Action: store.Release}
		}
		ok, err := l.store.Settle(ctx, owner, settlements, time.Now())
		if err != nil {
			return fmt.Errorf("release: %w", err)
		}
		for i := range ok {
			if !ok[i] {
				return fmt.Errorf("release: the lease of %s was lost", settlements[i].Lease.EventID)
			}
		}
	}
	if err := l.store.Relinquish(ctx, owner, time.Now()); err != nil {
		return fmt.Errorf("relinquish: %w", err)
	}
	return nil
}
