package fleettest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store"
)

// publisher publishes and operates until it is ended.
type publisher struct {
	*actor
	bus    *relaybus.Bus
	random *rand.Rand
	n      int
	// mine are the orders that are known to be committed.
	mine []string
}

const (
	publisherKeys = 20
	// publisherBacklog is when publishers wait for the workers.
	publisherBacklog = 100
	// outagePause is between two calls while the database is gone.
	outagePause = 50 * time.Millisecond
)

var errUndone = errors.New("undone on purpose")

func (p *actor) publish(ctx context.Context) error {
	bus, err := p.bus(true)
	if err != nil {
		return err
	}
	// Deliveries are made for the handlers that others have recorded.
	for !p.recorded(ctx) {
		if !Wait(ctx, 20*time.Millisecond) {
			return nil
		}
	}
	if err := bus.Start(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	u := &publisher{actor: p, bus: bus, random: rand.New(rand.NewPCG(p.Seed, p.Seed))}
	p.log.Say(Entry{What: SaidUp})
	// A predecessor may have been killed while it paused the handler.
	err = u.survive(ctx, "resume", func() error { return ignoreMissing(bus.Resume(ctx, HandlerMail)) })
	for err == nil && ctx.Err() == nil && (p.Events == 0 || u.n < p.Events) {
		err = u.step(ctx)
	}
	// What the end of the context broke off is not known to be committed.
	return errors.Join(unlessEnded(ctx, err), bus.Stop(context.WithoutCancel(ctx)))
}

// unlessEnded is the error, unless it may have come from the end of the program.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, relaybus.ErrNotFound) {
		return nil
	}
	return err
}

// mayBe reports whether an error says that the database is gone, and that may be.
func (p *actor) mayBe(err error) bool {
	return p.Faults && (isOutage(err) || p.shop.Gone != nil && p.shop.Gone(err))
}

// survive calls f, again while the database is gone, if that may be.
func (p *actor) survive(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		if err == nil || !p.mayBe(err) {
			return err
		}
		p.log.Say(Entry{What: SaidOutage, Text: what + ": " + err.Error()})
		if !Wait(ctx, outagePause) {
			return ctx.Err()
		}
	}
}

func (p *actor) recorded(ctx context.Context) bool {
	entries, err := p.shop.Store.Handlers(ctx)
	if err != nil {
		return false
	}
	for _, id := range append(HandlersOf(OrderPlaced.Name()), HandlerSink) {
		if !slices.ContainsFunc(entries, func(e store.HandlerEntry) bool { return e.ID == id && len(e.Types) > 0 }) {
			return false
		}
	}
	return true
}

func (u *publisher) step(ctx context.Context) error {
	if u.Events > 0 {
		return u.transaction(ctx, 1, nil)
	}
	if err := u.survive(ctx, "statistics", func() error { return u.backlog(ctx) }); err != nil {
		return err
	}
	if !Wait(ctx, time.Duration(u.random.IntN(30))*time.Millisecond) {
		return ctx.Err()
	}
	switch draw := u.random.IntN(100); {
	case draw < 60:
		return u.transaction(ctx, 1, nil)
	case draw < 68:
		return u.transaction(ctx, 1+u.random.IntN(2), errUndone)
	case draw < 76:
		return u.transaction(ctx, 2+u.random.IntN(3), nil)
	case draw < 84:
		return u.joined(ctx)
	case draw < 94:
		return u.survive(ctx, "publish again", func() error { return u.again(ctx) })
	default:
		return u.survive(ctx, "operate", func() error { return u.operate(ctx) })
	}
}

// backlog waits until the workers have caught up a little.
func (u *publisher) backlog(ctx context.Context) error {
	for {
		stats, err := u.bus.Statistics(ctx)
		if err != nil || stats.Pending < publisherBacklog {
			return err
		}
		if !Wait(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// place returns the next order: half of them have one of a few keys.
func (u *publisher) place() (id string, m relaybus.Message, key string) {
	id = fmt.Sprintf("%s.%d", u.Name, u.n)
	u.n++
	options := []relaybus.PublishOption{relaybus.ID(id)}
	if u.random.IntN(2) == 0 {
		key = fmt.Sprintf("k-%d", u.random.IntN(publisherKeys))
		options = append(options, relaybus.Key(key))
	}
	o := OrderOf{ID: id, Work: u.random.IntN(8)}
	switch draw := u.random.IntN(100); {
	case draw < 4:
		o.Work = 100 + u.random.IntN(400)
	case draw < 6:
		o.Doomed = true
	case draw < 12:
		options = append(options, relaybus.Delay(time.Duration(u.random.IntN(200))*time.Millisecond))
	}
	if u.Events > 0 {
		o.Doomed = false
	}
	return id, OrderPlaced.New(o, options...), key
}

// transaction places orders in one transaction, which fails with undo. When nobody knows whether they were placed, they
// are placed again, until that is known.
func (u *publisher) transaction(ctx context.Context, n int, undo error) error {
	ids := make([]string, n)
	messages := make([]relaybus.Message, n)
	for i := range n {
		var key string
		ids[i], messages[i], key = u.place()
		u.log.Say(Entry{What: SaidPublishing, Event: ids[i], Key: key})
	}
	for again := false; ; again = true {
		err := u.bus.Transaction(ctx, func(ctx context.Context) error {
			for _, id := range ids {
				if err := u.shop.Order(ctx, id, again); err != nil {
					return err
				}
			}
			u.pass(PointRow)
			if err := u.bus.Publish(ctx, messages...); err != nil {
				return err
			}
			return undo
		})
		outcome := relaybus.OutcomeOf(err)
		switch {
		case err == nil:
			u.mine = append(u.mine, ids...)
			u.sayOf(SaidCommitted, ids, nil)
			return nil
		case undo != nil && errors.Is(err, undo):
			u.sayOf(SaidRolledBack, ids, nil)
			return nil
		case !u.mayBe(err):
			return fmt.Errorf("place orders: %w", err)
		case outcome == relaybus.Unknown:
			u.sayOf(SaidUnknown, ids, err)
		case again:
			// An earlier run may have committed; this one is known not to have.
			u.sayOf(SaidOutage, ids, err)
		default:
			u.sayOf(SaidRolledBack, ids, err)
			return pause(ctx)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context) error {
	if !Wait(ctx, outagePause) {
		return ctx.Err()
	}
	return nil
}

func (u *publisher) sayOf(what string, ids []string, err error) {
	for _, id := range ids {
		e := Entry{What: what, Event: id}
		if err != nil {
			e.Text = err.Error()
		}
		u.log.Say(e)
	}
}

// joined places an order in a transaction of the driver's own.
func (u *publisher) joined(ctx context.Context) error {
	id, m, key := u.place()
	u.log.Say(Entry{What: SaidPublishing, Event: id, Key: key})
	known := func(what string, err error) error {
		if !u.mayBe(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		u.sayOf(SaidRolledBack, []string{id}, err)
		return pause(ctx)
	}
	tx, err := u.shop.Begin(ctx)
	if err != nil {
		return known("begin", err)
	}
	err = tx.Order(ctx, id)
	if err == nil {
		u.pass(PointRow)
		err = u.bus.PublishTx(ctx, tx.Tx, m)
	}
	if err != nil {
		return known("place an order in a transaction of the driver's own", errors.Join(err, tx.Rollback(ctx)))
	}
	if err := tx.Commit(ctx); err != nil {
		if !u.mayBe(err) {
			return fmt.Errorf("commit: %w", err)
		}
		u.sayOf(SaidUnknown, []string{id}, err)
		return pause(ctx)
	}
	u.bus.Committed()
	u.mine = append(u.mine, id)
	u.log.Say(Entry{What: SaidCommitted, Event: id})
	return nil
}

// again publishes an order that is there already.
func (u *publisher) again(ctx context.Context) error {
	if len(u.mine) == 0 {
		return nil
	}
	id := u.mine[u.random.IntN(len(u.mine))]
	err := u.bus.Transaction(ctx, func(ctx context.Context) error {
		return u.bus.Publish(ctx, OrderPlaced.New(OrderOf{ID: id}, relaybus.ID(id)))
	})
	if err != nil {
		return fmt.Errorf("publish again: %w", err)
	}
	return nil
}

func (u *publisher) operate(ctx context.Context) error {
	var err error
	switch u.random.IntN(4) {
	case 0:
		if err = ignoreMissing(u.bus.Pause(ctx, HandlerMail)); err == nil {
			Wait(ctx, time.Duration(u.random.IntN(50))*time.Millisecond)
			err = u.survive(ctx, "resume", func() error {
				return ignoreMissing(u.bus.Resume(context.WithoutCancel(ctx), HandlerMail))
			})
		}
	case 1:
		_, err = u.bus.RequeueWhere(ctx, relaybus.Filter{Handler: HandlerDoomed})
	case 2:
		var page relaybus.DeliveryPage
		page, err = u.bus.ListDeliveries(ctx, relaybus.Filter{Status: relaybus.StatusDead}, relaybus.Page{Limit: 3})
		for _, d := range page.Deliveries {
			// Somebody else may have been quicker.
			if again := u.bus.Requeue(ctx, d.ID); !errors.Is(again, relaybus.ErrState) && !errors.Is(again, relaybus.ErrNotFound) {
				err = errors.Join(err, again)
			}
		}
	default:
		if len(u.mine) > 0 {
			_, _, err = u.bus.Event(ctx, u.mine[len(u.mine)-1])
		}
	}
	if err != nil {
		return fmt.Errorf("operate: %w", err)
	}
	u.log.Say(Entry{What: SaidOperated})
	return nil
}
