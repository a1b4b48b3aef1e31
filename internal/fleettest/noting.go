package fleettest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
)

// noting is a store that notes claims and renewals with the times that they gave, and passes the points around it.
type noting struct {
	store.Store
	p *actor
}

var _ store.Waker = noting{}

// Wake is the inner store's; one that has no such ability never signals.
func (n noting) Wake(ctx context.Context, signal func()) error {
	if w, ok := n.Store.(store.Waker); ok {
		return w.Wake(ctx, signal)
	}
	<-ctx.Done()
	return nil
}

func (n noting) Claim(ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
	result, err := n.Store.Claim(ctx, r)
	if err == nil && len(result.Deliveries) > 0 {
		e := Entry{What: SaidClaim, Now: r.Now.UnixMilli()}
		for _, d := range result.Deliveries {
			e.Claims = append(e.Claims, Taken{
				Event: d.Event.ID, Handler: d.Lease.Handler, Generation: d.Lease.Token.Claims, Attempt: d.Attempt, Lost: d.Lost,
			})
		}
		n.p.log.Say(e)
	}
	return result, err
}

func (n noting) Extend(
	ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration,
) ([]bool, error) {
	holds, err := n.Store.Extend(ctx, owner, leases, now, lease)
	if err == nil {
		n.p.pass(PointRenewed)
		e := Entry{What: SaidRenewal, Now: now.UnixMilli()}
		for i, l := range leases {
			if holds[i] {
				e.Claims = append(e.Claims, Taken{Event: l.EventID, Handler: l.Handler, Generation: l.Token.Claims})
			}
		}
		n.p.log.Say(e)
	}
	return holds, err
}

func (n noting) Relinquish(ctx context.Context, owner string, now time.Time) error {
	n.p.pass(PointRelinquish)
	return n.Store.Relinquish(ctx, owner, now)
}

// Transact passes a point after the commit of a transactional handler: these are the lazy ones.
func (n noting) Transact(
	ctx context.Context, o store.TxOptions, fn func(ctx context.Context, tx store.Tx) error,
) error {
	if !o.Lazy {
		return n.Store.Transact(ctx, o, fn)
	}
	var of *completing
	err := n.Store.Transact(ctx, o, func(ctx context.Context, tx store.Tx) error {
		of = n.p.expect(tx)
		return fn(ctx, tx)
	})
	if of == nil {
		return err
	}
	n.p.forget(of)
	switch {
	case err == nil:
		n.p.pass(PointCompleted)
	case of.lease.EventID != "":
		n.p.log.Say(Entry{What: SaidUndone, Event: of.lease.EventID, Handler: of.lease.Handler, Text: err.Error()})
	}
	return err
}

func (n noting) CompleteTx(ctx context.Context, tx store.Tx, owner string, l store.Lease, now time.Time) error {
	n.p.expected(tx, l)
	err := n.Store.CompleteTx(ctx, tx, owner, l, now)
	if err == nil {
		n.p.pass(PointComplete)
		n.p.completes(l.EventID)
	}
	return err
}

// completing is the transaction of a handler, and the lease that is completed in it, once that is tried.
type completing struct {
	tx    store.Tx
	lease store.Lease
}

func (p *actor) expect(tx store.Tx) *completing {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := &completing{tx: tx}
	p.completing = append(p.completing, of)
	return of
}

func (p *actor) expected(tx store.Tx, l store.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.completing {
		if of.tx == tx {
			of.lease = l
		}
	}
}

func (p *actor) forget(of *completing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.completing = slices.DeleteFunc(p.completing, func(one *completing) bool { return one == of })
}

// outcomes notes how attempts ended.
type outcomes struct {
	log    *Logbook
	faults bool
}

func (o outcomes) note(what string, a relaybus.Attempt) {
	o.log.Say(Entry{What: what, Event: a.Event.ID, Handler: a.Handler, Key: a.Event.Key, Attempt: a.Number})
}

func (o outcomes) OnSucceeded(a relaybus.Attempt) { o.note(SaidSucceeded, a) }
func (o outcomes) OnRetried(a relaybus.Attempt)   { o.note(SaidRetried, a) }
func (o outcomes) OnBuried(a relaybus.Attempt)    { o.note(SaidBuried, a) }
func (o outcomes) OnReleased(a relaybus.Attempt)  { o.note(SaidReleased, a) }
func (o outcomes) OnLeaseLost(a relaybus.Attempt) { o.note(SaidLost, a) }

// trouble notes an error that the bus met. Those of a process that gets no time from the machine are no fault of
// anybody, and those of one whose database is gone are expected.
func (o outcomes) trouble(what string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, relaybus.ErrTimeout):
		o.log.Say(Entry{What: SaidStall, Text: what + ": " + err.Error()})
	case o.faults && errors.Is(err, relaybus.ErrUnavailable):
		o.log.Say(Entry{What: SaidOutage, Text: what + ": " + err.Error()})
	default:
		o.log.Say(Entry{What: SaidTrouble, Text: what + ": " + err.Error()})
	}
}

func (o outcomes) OnClaimed(c relaybus.Claimed)   { o.trouble("claim", c.Err) }
func (o outcomes) OnSettled(c relaybus.StoreCall) { o.trouble("settle", c.Err) }
func (o outcomes) OnRenewed(c relaybus.StoreCall) { o.trouble("renew", c.Err) }
