package fleettest

import (
	"context"
	"errors"
	"time"

	"github.com/relaybus-go/relaybus"
)

// The steered handlers, and what an order's Result makes them do in a process that is held: they wait for a turn,
// whatever becomes of their context. The plain one takes [OrderPlaced], the transactional one [OrderBooked].
const (
	SteeredPlain = "plain"
	SteeredTx    = "transactional"

	ResultSuccess   = "success"
	ResultFailure   = "failure"
	ResultPermanent = "permanent failure"
	// ResultEffectFirst has a transaction open while it waits.
	ResultEffectFirst = "effect first"
	// ResultCompleted waits in the same transaction as its completion, which it has written.
	ResultCompleted = "completed"
)

var errSteered = errors.New("the parent wants it to fail")

// Steered are the steered handlers for a bus that publishes to a process with [Program].Steered.
func Steered(lease time.Duration) []relaybus.Handler {
	return (&actor{Program: Program{Lease: lease}}).steered()
}

func (p *actor) steered() []relaybus.Handler {
	held := func(e *relaybus.Event[OrderOf]) error {
		if !p.Hold || e.Payload.Result == ResultCompleted {
			return nil
		}
		<-p.turns
		switch e.Payload.Result {
		case ResultFailure:
			return errSteered
		case ResultPermanent:
			return relaybus.Permanent(errSteered)
		default:
			return nil
		}
	}
	return []relaybus.Handler{
		OrderPlaced.Handle(SteeredPlain, noted(p, func(_ context.Context, e *relaybus.Event[OrderOf]) error {
			return held(e)
		})),
		OrderBooked.Handle(SteeredTx, noted(p, func(ctx context.Context, e *relaybus.Event[OrderOf]) error {
			first := e.Payload.Result == ResultEffectFirst
			if first {
				if err := p.shop.Effect(ctx, e.Payload.ID); err != nil {
					return err
				}
				p.log.Say(Entry{What: SaidTurn})
			}
			err := held(e)
			// What a handler does after its time has passed has no effect.
			if !first {
				err = errors.Join(err, p.shop.Effect(context.WithoutCancel(ctx), e.Payload.ID))
			}
			if p.Hold && e.Payload.Result == ResultCompleted {
				p.holdCompletion(e.ID)
			}
			return err
		}), relaybus.Transactional(), relaybus.Timeout(p.Lease*2/5)),
	}
}

// holdCompletion makes the next completion of the event in a transaction wait for a turn before the commit.
func (p *actor) holdCompletion(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = event
}

// completes is called when a completion was written in a transaction.
func (p *actor) completes(event string) {
	p.mu.Lock()
	held := p.held == event
	p.held = ""
	p.mu.Unlock()
	if held {
		p.log.Say(Entry{What: SaidTurn})
		<-p.turns
	}
}
