package simulation_test

import (
	"context"
	"errors"
	"time"

	"github.com/relaybus-go/relaybus"
)

// attempt is one publish of a step.
type attempt struct {
	// lied: the store said that the commit failed, and it had not.
	lied bool
}

type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// perform does one step in whatever process has the slot.
func (w *world) perform(s step) {
	p := w.current(s.slot)
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.plan.lease)
	defer cancel()
	switch {
	case s.kind <= publishAgain:
		w.publish(ctx, p, s)
	case s.kind == stopProcess:
		p.retire()
	case s.kind == crashProcess:
		if w.mayCrash() {
			p.crash()
		}
	default:
		w.operate(ctx, p, s)
	}
}

func (w *world) publish(ctx context.Context, p *process, s step) {
	if s.kind == publishAgain {
		e, ok := w.history.anyEvent(s.choice)
		if !ok {
			return
		}
		s.events = []eventPlan{e}
	}
	for try := 0; ; try++ {
		for _, e := range s.events {
			w.history.announce(e)
		}
		a := &attempt{}
		outcome := p.publish(context.WithValue(ctx, attemptKey{}, a), s)
		w.history.published(s, outcome, a.lied)
		if outcome != relaybus.Unknown || !s.again || try == 2 {
			return
		}
		s.kind = publishInTransaction
	}
}

// publish publishes the events of a step, and says what became of them.
func (p *process) publish(ctx context.Context, s step) (outcome relaybus.Outcome) {
	messages := make([]relaybus.Message, len(s.events))
	for i, e := range s.events {
		messages[i] = e.message()
	}
	transaction := func(fn func(ctx context.Context) error) relaybus.Outcome {
		return relaybus.OutcomeOf(p.bus.Transaction(ctx, fn))
	}
	all := func(ctx context.Context) error { return p.bus.Publish(ctx, messages...) }
	switch s.kind {
	case publishAlone, publishAgain:
		return relaybus.OutcomeOf(p.bus.Publish(ctx, messages...))
	case publishNested:
		return transaction(func(ctx context.Context) error {
			if err := p.bus.Publish(ctx, messages[0]); err != nil {
				return err
			}
			return p.bus.Transaction(ctx, func(ctx context.Context) error { return p.bus.Publish(ctx, messages[1:]...) })
		})
	case publishNestedFails:
		joined := false
		err := p.bus.Transaction(ctx, func(ctx context.Context) error {
			err := p.bus.Transaction(ctx, func(ctx context.Context) error {
				joined = true
				return errors.Join(all(ctx), errPlanned)
			})
			if err == nil {
				p.world.history.suspect("B3: a nested transaction that failed returned nil")
			}
			return nil
		})
		if err == nil && !joined {
			return relaybus.NotCommitted // it was empty: the bus stopped meanwhile
		}
		return relaybus.OutcomeOf(err)
	case publishRolledBack:
		return transaction(func(ctx context.Context) error { return errors.Join(all(ctx), errPlanned) })
	case publishPanics:
		defer func() {
			if recover() != nil {
				outcome = relaybus.NotCommitted
			}
		}()
		return transaction(func(ctx context.Context) error {
			if err := all(ctx); err != nil {
				return err
			}
			panic(errPlanned)
		})
	case publishSlowly:
		return transaction(func(ctx context.Context) error {
			if err := all(ctx); err != nil {
				return err
			}
			_ = p.work(context.WithoutCancel(ctx), s.lasts) // too long for the budget, at times
			return nil
		})
	case publishInCallers, publishInCallersRolledBack:
		return p.publishInCallers(ctx, s, messages)
	default:
		return transaction(all)
	}
}

// publishInCallers publishes in a transaction that the bus did not open.
func (p *process) publishInCallers(ctx context.Context, s step, messages []relaybus.Message) relaybus.Outcome {
	tx := p.store.inner.Begin()
	defer func() { _ = tx.Rollback() }() // an error says that it is over
	if err := p.bus.PublishTx(ctx, tx, messages...); err != nil {
		return relaybus.NotCommitted
	}
	if s.kind == publishInCallersRolledBack {
		return relaybus.NotCommitted
	}
	applied, err := p.store.commit(ctx, tx)
	if err == nil && s.choice%2 == 0 {
		p.bus.Committed()
	}
	if applied && err != nil {
		return relaybus.Unknown
	}
	return relaybus.OutcomeOf(err)
}

// published checks what a publish returned.
func (h *history) published(s step, outcome relaybus.Outcome, lied bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	never := s.kind == publishNestedFails || s.kind == publishRolledBack || s.kind == publishPanics
	if never && outcome == relaybus.Committed {
		h.report("I7: a publish that was to be rolled back was committed (kind %d)", s.kind)
	}
	for _, planned := range s.events {
		e := h.events[planned.id]
		switch {
		case outcome == relaybus.Committed && e.order == 0:
			h.report("I7: the publish of %s succeeded, and it was not committed", planned.id)
		case (outcome == relaybus.NotCommitted || never) && e.order != 0 && e.attempts == 1 && !lied:
			h.report("I7: the publish of %s failed, and it was committed (kind %d)", planned.id, s.kind)
		}
	}
}

// anyEvent returns one of the events that were announced by a step.
func (h *history) anyEvent(choice uint64) (eventPlan, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []eventPlan
	for _, s := range h.plan.steps {
		for _, e := range s.events {
			if h.events[e.id] != nil {
				list = append(list, e)
			}
		}
	}
	if len(list) == 0 {
		return eventPlan{}, false
	}
	return list[choice%uint64(len(list))], true
}

// operate does what an operator does. What comes of it the store tells the
// history.
func (w *world) operate(ctx context.Context, p *process, s step) {
	find := func(f relaybus.Filter) (relaybus.DeliveryID, bool) {
		page, err := p.bus.ListDeliveries(ctx, f, relaybus.Page{})
		if err != nil || len(page.Deliveries) == 0 {
			return relaybus.DeliveryID{}, false
		}
		return page.Deliveries[s.choice%uint64(len(page.Deliveries))].ID, true
	}
	var err error
	switch s.kind {
	case requeue:
		if id, ok := find(relaybus.Filter{Status: relaybus.StatusDead}); ok {
			err = p.bus.Requeue(ctx, id)
		}
	case requeueWhere:
		_, err = p.bus.RequeueWhere(ctx, relaybus.Filter{Handler: w.plan.handlers[0].name})
	case bury:
		if id, ok := find(relaybus.Filter{Status: relaybus.StatusPending}); ok {
			err = p.bus.Bury(ctx, id, "planned")
		}
	case reschedule:
		if id, ok := find(relaybus.Filter{Status: relaybus.StatusPending}); ok {
			err = p.bus.Reschedule(ctx, id, time.Now().Add(s.lasts))
		}
	case skip:
		if id, ok := find(relaybus.Filter{HoldsKey: true}); ok {
			err = p.bus.Skip(ctx, id)
		}
	case cancel:
		if e, ok := w.history.anyEvent(s.choice); ok {
			err = p.bus.Cancel(ctx, e.id)
		}
	case pause:
		id := w.plan.handlers[s.choice%uint64(len(w.plan.handlers))].name
		err = p.bus.Pause(ctx, id)
		_ = p.work(ctx, s.lasts) // whatever ends the pause, it ends
		err = errors.Join(err, p.bus.Resume(ctx, id))
	default:
		_, err = p.bus.Statistics(ctx)
	}
	if err != nil && !known(err) {
		w.history.suspect("S15: an operator's call returned %v", err)
	}
}

// known says that an error of an operator's call has one of the classes that
// it may have.
func known(err error) bool {
	for _, class := range []error{
		relaybus.ErrUnavailable, relaybus.ErrTimeout, relaybus.ErrConflict, relaybus.ErrNotFound,
		relaybus.ErrState, relaybus.ErrRunning, relaybus.ErrStopped,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
