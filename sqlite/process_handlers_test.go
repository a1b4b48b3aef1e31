package sqlite_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/sqlite"
)

type order struct {
	ID string
	// Work is how many milliseconds its plain handler takes.
	Work int
	// Doomed orders die at the handler of that name.
	Doomed bool
	// Result is what the steered handlers of a process that is held return.
	Result string
}

var (
	orderPlaced   = relaybus.Define[order]("order.placed.v1")
	orderBooked   = relaybus.Define[order]("order.booked.v1")
	orderFollowed = relaybus.Define[order]("order.followed.v1")
)

// The handlers.
const (
	handlerMail   = "mail"
	handlerLedger = "ledger"
	handlerFlaky  = "flaky"
	handlerFollow = "follow"
	handlerDoomed = "doomed"
	handlerSink   = "sink"
)

// handlersOf returns who gets events of a type.
func handlersOf(eventType string) []string {
	if eventType == orderPlaced.Name() {
		return []string{handlerDoomed, handlerFlaky, handlerFollow, handlerLedger, handlerMail}
	}
	return []string{handlerSink}
}

// followID is the id of the event, and of its row, that follows an order.
func followID(id string) string { return "f-" + id }

// makeTables makes the tables of the user. Nothing in effects is unique, so
// that an effect that happens twice is seen.
const makeTables = `
CREATE TABLE orders (id TEXT PRIMARY KEY NOT NULL);
CREATE TABLE effects (n INTEGER PRIMARY KEY, id TEXT NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL);
INSERT INTO counters VALUES ('n', 0);`

var (
	errFirstAttempt = errors.New("the first attempt fails")
	errDoomed       = errors.New("the order is doomed")
)

// handlers are plain ones, one that fails at first, one that dies, one that
// publishes, and a transactional one that does so, too.
func (p *actor) handlers(bus *relaybus.Bus) []relaybus.Handler {
	return []relaybus.Handler{
		orderPlaced.Handle(handlerMail, noted(p, func(ctx context.Context, e *relaybus.Event[order]) error {
			if !wait(ctx, time.Duration(e.Payload.Work)*time.Millisecond/2) {
				return ctx.Err()
			}
			p.pass(pointHandler)
			if !wait(ctx, time.Duration(e.Payload.Work)*time.Millisecond/2) {
				return ctx.Err()
			}
			return nil
		})),
		orderPlaced.Handle(handlerLedger, noted(p, func(ctx context.Context, e *relaybus.Event[order]) error {
			if err := book(ctx, e.Payload.ID); err != nil {
				return err
			}
			p.pass(pointInTx)
			err := bus.Publish(ctx, orderBooked.New(order{ID: e.Payload.ID}, sameKey(e.Key)...))
			p.complete()
			return err
		}), relaybus.Transactional(), relaybus.Timeout(p.Lease*2/5)),
		orderPlaced.Handle(handlerFlaky, noted(p, func(_ context.Context, e *relaybus.Event[order]) error {
			if e.Attempt == 1 {
				return errFirstAttempt
			}
			return nil
		})),
		orderPlaced.Handle(handlerFollow, noted(p, func(ctx context.Context, e *relaybus.Event[order]) error {
			id := followID(e.Payload.ID)
			return bus.Transaction(ctx, func(ctx context.Context) error {
				_, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO orders (id) VALUES (?) ON CONFLICT DO NOTHING`, id)
				if err != nil {
					return err
				}
				options := append(sameKey(e.Key), relaybus.ID(id))
				return bus.Publish(ctx, orderFollowed.New(order{ID: e.Payload.ID}, options...))
			})
		})),
		orderPlaced.Handle(handlerDoomed, noted(p, func(_ context.Context, e *relaybus.Event[order]) error {
			if e.Payload.Doomed {
				return relaybus.Permanent(errDoomed)
			}
			return nil
		})),
		relaybus.Handle(handlerSink, []string{orderBooked.Name(), orderFollowed.Name()},
			func(_ context.Context, e *relaybus.RawEvent) error {
				p.log.say(execution(saidStart, e))
				p.log.say(execution(saidEnd, e))
				return nil
			}),
	}
}

func book(ctx context.Context, id string) error {
	_, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO effects (id) VALUES (?)`, id)
	return err
}

func sameKey(key string) []relaybus.PublishOption {
	if key == "" {
		return nil
	}
	return []relaybus.PublishOption{relaybus.Key(key)}
}

// noted notes the beginning and the end of each execution.
func noted(
	p *actor, handle func(ctx context.Context, e *relaybus.Event[order]) error,
) func(ctx context.Context, e *relaybus.Event[order]) error {
	return func(ctx context.Context, e *relaybus.Event[order]) error {
		p.log.say(execution(saidStart, e))
		err := handle(ctx, e)
		end := execution(saidEnd, e)
		if err != nil {
			end.Text = err.Error()
		}
		p.log.say(end)
		p.execute()
		return err
	}
}

func execution[T any](what string, e *relaybus.Event[T]) entry {
	return entry{
		What: what, Event: e.ID, Handler: e.Handler, Key: e.Key, Sequence: e.Sequence, Attempt: e.Attempt,
	}
}

// The steered handlers, and what an order's Result makes them do in a process
// that is held: they wait for a turn, whatever becomes of their context.
const (
	steeredPlain = "plain"
	steeredTx    = "transactional"

	resultSuccess   = "success"
	resultFailure   = "failure"
	resultPermanent = "permanent failure"
	// resultEffectFirst has a transaction open while it waits.
	resultEffectFirst = "effect first"
)

var errSteered = errors.New("the parent wants it to fail")

func (p *actor) steered() []relaybus.Handler {
	held := func(e *relaybus.Event[order]) error {
		if !p.Hold {
			return nil
		}
		<-p.turns
		switch e.Payload.Result {
		case resultFailure:
			return errSteered
		case resultPermanent:
			return relaybus.Permanent(errSteered)
		default:
			return nil
		}
	}
	return []relaybus.Handler{
		orderPlaced.Handle(steeredPlain, noted(p, func(_ context.Context, e *relaybus.Event[order]) error {
			return held(e)
		})),
		orderBooked.Handle(steeredTx, noted(p, func(ctx context.Context, e *relaybus.Event[order]) error {
			first := e.Payload.Result == resultEffectFirst
			if first {
				if err := book(ctx, e.Payload.ID); err != nil {
					return err
				}
				p.log.say(entry{What: saidTurn})
			}
			err := held(e)
			// What a handler does after its time has passed has no effect.
			if !first {
				err = errors.Join(err, book(context.WithoutCancel(ctx), e.Payload.ID))
			}
			return err
		}), relaybus.Transactional(), relaybus.Timeout(p.Lease*2/5)),
	}
}

// without returns the list without the words.
func without(list []string, words ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(one string) bool { return slices.Contains(words, one) })
}
