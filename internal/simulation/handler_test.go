package simulation_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

var (
	errPlanned = errors.New("planned failure")
	errCrashed = errors.New("the process has crashed")
)

// handler returns the function of a handler in this process.
func (p *process) handler(h *handlerPlan) relaybus.HandlerFunc {
	return func(ctx context.Context, e *relaybus.RawEvent) error {
		if p.isDead() {
			return errCrashed
		}
		x := p.world.history.start(p, h.name, e.ID, e.Key, e.Attempt, ctx)
		if x == nil {
			return nil
		}
		success := false
		defer func() { p.world.history.end(x, success) }()
		if h.transactional {
			memstore.Tx(ctx).OnCommit(func() { p.world.history.effect(x.delivery) })
		}
		err := p.behave(ctx, h, e, x.ordinal)
		success = err == nil
		return err
	}
}

// behave does what the plan says for this execution of the handler.
func (p *process) behave(ctx context.Context, h *handlerPlan, e *relaybus.RawEvent, ordinal int) error {
	w := p.world
	lease := w.plan.lease
	r := w.plan.random("handle", h.name, e.ID, strconv.Itoa(ordinal))
	what := r.IntN(24)
	if w.isCalm() {
		what = 24
	}
	var err error
	switch what {
	case 0, 1:
		err = errPlanned
	case 2:
		panic(errPlanned)
	case 3:
		runtime.Goexit()
	case 4:
		return relaybus.Permanent(errPlanned)
	case 5:
		return relaybus.RetryAfter(time.Duration(r.Int64N(int64(w.plan.retryCap))), errPlanned)
	case 6:
		if ordinal <= 2 {
			w.history.outage(p, h)
			return relaybus.Unavailable(errPlanned)
		}
	case 7, 9:
		err = p.work(ctx, lease+time.Duration(r.Int64N(int64(lease))))
	case 8:
		err = p.work(context.WithoutCancel(ctx), time.Duration(r.Int64N(int64(2*lease))))
	case 24:
		err = p.work(ctx, time.Millisecond)
	default:
		err = p.work(ctx, time.Duration(r.Int64N(int64(lease/10))))
	}
	if err == nil && w.plan.poisonous(deliveryName{e.ID, h.name}) {
		err = errPlanned
	}
	if err == nil && h.follow {
		err = p.followUp(ctx, h, e)
	}
	return err
}

// poisonous says that a delivery fails whenever it is executed.
func (p *plan) poisonous(d deliveryName) bool {
	return p.random("poison", d.handler, d.event).IntN(15) == 0
}

// work lets time pass, until the context ends, the process crashes or the
// faults stop.
func (p *process) work(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.dead:
		return errCrashed
	case <-p.world.calm:
		return nil
	}
}

// followUp publishes an event that this one causes: in the transaction of a
// transactional handler, else in one of its own, under an id that makes it one
// event however often it is published.
func (p *process) followUp(ctx context.Context, h *handlerPlan, e *relaybus.RawEvent) error {
	next := eventPlan{id: e.ID + "/" + h.name, typeName: shipmentSent, key: e.Key}
	p.world.history.announce(next)
	if h.transactional {
		return p.bus.Publish(ctx, next.message())
	}
	return p.bus.Transaction(ctx, func(ctx context.Context) error {
		return p.bus.Publish(ctx, next.message())
	})
}

func (e eventPlan) message() relaybus.Message {
	options := []relaybus.PublishOption{relaybus.ID(e.id)}
	if e.key != "" {
		options = append(options, relaybus.Key(e.key))
	}
	if e.delay > 0 {
		options = append(options, relaybus.Delay(e.delay))
	}
	return relaybus.Raw(e.typeName, []byte(`{}`), options...)
}
