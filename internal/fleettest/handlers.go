package fleettest

import (
	"context"
	"errors"
	"time"

	"github.com/relaybus-go/relaybus"
)

var (
	errFirstAttempt = errors.New("the first attempt fails")
	errDoomed       = errors.New("the order is doomed")
)

// handlers are plain ones, one that fails at first, one that dies, one that publishes, and a transactional one that
// does so, too.
func (p *actor) handlers(bus *relaybus.Bus) []relaybus.Handler {
	return []relaybus.Handler{
		OrderPlaced.Handle(HandlerMail, noted(p, func(ctx context.Context, e *relaybus.Event[OrderOf]) error {
			if !Wait(ctx, time.Duration(e.Payload.Work)*time.Millisecond/2) {
				return ctx.Err()
			}
			p.pass(PointHandler)
			if !Wait(ctx, time.Duration(e.Payload.Work)*time.Millisecond/2) {
				return ctx.Err()
			}
			return nil
		})),
		OrderPlaced.Handle(HandlerLedger, noted(p, func(ctx context.Context, e *relaybus.Event[OrderOf]) error {
			if err := p.shop.Effect(ctx, e.Payload.ID); err != nil {
				return err
			}
			p.pass(PointInTx)
			return bus.Publish(ctx, OrderBooked.New(OrderOf{ID: e.Payload.ID}, sameKey(e.Key)...))
		}), relaybus.Transactional(), relaybus.Timeout(p.Lease*2/5)),
		OrderPlaced.Handle(HandlerFlaky, noted(p, func(_ context.Context, e *relaybus.Event[OrderOf]) error {
			if e.Attempt == 1 {
				return errFirstAttempt
			}
			return nil
		})),
		OrderPlaced.Handle(HandlerFollow, noted(p, func(ctx context.Context, e *relaybus.Event[OrderOf]) error {
			id := followID(e.Payload.ID)
			return bus.Transaction(ctx, func(ctx context.Context) error {
				if err := p.shop.Order(ctx, id, true); err != nil {
					return err
				}
				options := append(sameKey(e.Key), relaybus.ID(id))
				return bus.Publish(ctx, OrderFollowed.New(OrderOf{ID: e.Payload.ID}, options...))
			})
		})),
		OrderPlaced.Handle(HandlerDoomed, noted(p, func(_ context.Context, e *relaybus.Event[OrderOf]) error {
			if e.Payload.Doomed {
				return relaybus.Permanent(errDoomed)
			}
			return nil
		})),
		relaybus.Handle(HandlerSink, []string{OrderBooked.Name(), OrderFollowed.Name()},
			func(_ context.Context, e *relaybus.RawEvent) error {
				p.log.Say(execution(SaidStart, e))
				p.log.Say(execution(SaidEnd, e))
				return nil
			}),
	}
}

func sameKey(key string) []relaybus.PublishOption {
	if key == "" {
		return nil
	}
	return []relaybus.PublishOption{relaybus.Key(key)}
}

// noted notes the beginning and the end of each execution.
func noted(
	p *actor, handle func(ctx context.Context, e *relaybus.Event[OrderOf]) error,
) func(ctx context.Context, e *relaybus.Event[OrderOf]) error {
	return func(ctx context.Context, e *relaybus.Event[OrderOf]) error {
		p.log.Say(execution(SaidStart, e))
		err := handle(ctx, e)
		end := execution(SaidEnd, e)
		if err != nil {
			end.Text = err.Error()
		}
		p.log.Say(end)
		p.execute()
		return err
	}
}

func execution[T any](what string, e *relaybus.Event[T]) Entry {
	return Entry{
		What: what, Event: e.ID, Handler: e.Handler, Key: e.Key, Sequence: e.Sequence, Attempt: e.Attempt,
	}
}
