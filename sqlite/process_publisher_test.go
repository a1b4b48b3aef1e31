package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/sqlite"
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
)

var errUndone = errors.New("undone on purpose")

func (p *actor) publish(ctx context.Context) error {
	bus, err := p.bus(true)
	if err != nil {
		return err
	}
	// Deliveries are made for the handlers that others have recorded.
	for !p.recorded(ctx) {
		if !wait(ctx, 20*time.Millisecond) {
			return nil
		}
	}
	if err := bus.Start(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	u := &publisher{actor: p, bus: bus, random: rand.New(rand.NewPCG(p.Seed, p.Seed))}
	p.log.say(entry{What: saidUp})
	// A predecessor may have been killed while it paused the handler.
	err = ignoreMissing(bus.Resume(ctx, handlerMail))
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

func (p *actor) recorded(ctx context.Context) bool {
	entries, err := p.store.Handlers(ctx)
	if err != nil {
		return false
	}
	for _, id := range append(handlersOf(orderPlaced.Name()), handlerSink) {
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
	if err := u.backlog(ctx); err != nil {
		return err
	}
	if !wait(ctx, time.Duration(u.random.IntN(30))*time.Millisecond) {
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
		return u.again(ctx)
	default:
		return u.operate(ctx)
	}
}

// backlog waits until the workers have caught up a little.
func (u *publisher) backlog(ctx context.Context) error {
	for {
		stats, err := u.bus.Statistics(ctx)
		if err != nil || stats.Pending < publisherBacklog {
			return err
		}
		if !wait(ctx, 50*time.Millisecond) {
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
	o := order{ID: id, Work: u.random.IntN(8)}
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
	return id, orderPlaced.New(o, options...), key
}

// transaction places orders in one transaction, which fails with undo.
func (u *publisher) transaction(ctx context.Context, n int, undo error) error {
	ids := make([]string, n)
	messages := make([]relaybus.Message, n)
	for i := range n {
		var key string
		ids[i], messages[i], key = u.place()
		u.log.say(entry{What: saidPublishing, Event: ids[i], Key: key})
	}
	err := u.bus.Transaction(ctx, func(ctx context.Context) error {
		for _, id := range ids {
			if _, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, id); err != nil {
				return err
			}
		}
		u.pass(pointRow)
		if err := u.bus.Publish(ctx, messages...); err != nil {
			return err
		}
		return undo
	})
	said := saidCommitted
	if undo != nil && errors.Is(err, undo) {
		said, err = saidRolledBack, nil
	} else if err == nil {
		u.mine = append(u.mine, ids...)
	}
	if err != nil {
		return fmt.Errorf("place orders: %w", err)
	}
	for _, id := range ids {
		u.log.say(entry{What: said, Event: id})
	}
	return nil
}

// joined places an order in a transaction of the driver's own.
func (u *publisher) joined(ctx context.Context) error {
	id, m, key := u.place()
	u.log.say(entry{What: saidPublishing, Event: id, Key: key})
	tx, err := u.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, id)
	if err == nil {
		u.pass(pointRow)
		err = u.bus.PublishTx(ctx, sqlite.Join(tx), m)
	}
	if err != nil {
		return fmt.Errorf("place an order in a transaction of the driver's own: %w", errors.Join(err, tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	u.bus.Committed()
	u.mine = append(u.mine, id)
	u.log.say(entry{What: saidCommitted, Event: id})
	return nil
}

// again publishes an order that is there already.
func (u *publisher) again(ctx context.Context) error {
	if len(u.mine) == 0 {
		return nil
	}
	id := u.mine[u.random.IntN(len(u.mine))]
	err := u.bus.Transaction(ctx, func(ctx context.Context) error {
		return u.bus.Publish(ctx, orderPlaced.New(order{ID: id}, relaybus.ID(id)))
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
		if err = ignoreMissing(u.bus.Pause(ctx, handlerMail)); err == nil {
			wait(ctx, time.Duration(u.random.IntN(50))*time.Millisecond)
			err = ignoreMissing(u.bus.Resume(context.WithoutCancel(ctx), handlerMail))
		}
	case 1:
		_, err = u.bus.RequeueWhere(ctx, relaybus.Filter{Handler: handlerDoomed})
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
	u.log.say(entry{What: saidOperated})
	return nil
}
