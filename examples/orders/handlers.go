package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/sqlite"
)

// handlers are all that follows an order. The ids are stable: what is still to
// do is stored under them.
func (s *shop) handlers() []relaybus.Handler {
	return []relaybus.Handler{
		// Effectively once: what these write through the transaction, and what
		// they publish, commits together with the end of their delivery.
		OrderPlaced.Handle("charge", s.charge, relaybus.Transactional()),
		OrderPaid.Handle("ledger", s.ledger, relaybus.Transactional()),
		OrderPaid.Handle("ship", s.ship, relaybus.Transactional(), relaybus.Retry(relaybus.RetryPolicy{
			MaxAttempts: 3, Base: 100 * time.Millisecond, NoJitter: true,
		})),
		relaybus.Handle("timeline", []string{"order.*"}, s.timeline, relaybus.Transactional()),
		// At least once: a mail can't be rolled back, so it is sent by event id.
		OrderPlaced.Handle("mail-confirmation", s.mail),
	}
}

func (s *shop) charge(ctx context.Context, e *relaybus.Event[Order]) error {
	if err := s.setState(ctx, e.Payload.ID, "paid"); err != nil {
		return err
	}
	paid := Payment{OrderID: e.Payload.ID, Cents: e.Payload.Cents}
	return s.bus.Publish(ctx, OrderPaid.New(paid, relaybus.Key(e.Payload.ID)))
}

func (s *shop) ledger(ctx context.Context, e *relaybus.Event[Payment]) error {
	if _, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO ledger (order_id, cents) VALUES (?, ?)`,
		e.Payload.OrderID, e.Payload.Cents); err != nil {
		return err
	}
	if e.Payload.OrderID == s.crashAt {
		say("   💥  the process kills itself: the ledger entry of %s is written, but not committed", s.crashAt)
		return killMyself()
	}
	return nil
}

func killMyself() error {
	process, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := process.Kill(); err != nil {
		return err
	}
	select {} // until it takes effect
}

func (s *shop) ship(ctx context.Context, e *relaybus.Event[Payment]) error {
	var address string
	err := sqlite.Tx(ctx).QueryRowContext(ctx, `SELECT address FROM orders WHERE id = ?`, e.Payload.OrderID).Scan(&address)
	if err != nil {
		return err
	}
	if address == "" {
		return relaybus.Permanent(errors.New("the order has no address")) // no use in trying again
	}
	if err := s.setState(ctx, e.Payload.OrderID, "shipped"); err != nil {
		return err
	}
	return s.bus.Publish(ctx, OrderShipped.New(Parcel{OrderID: e.Payload.OrderID}, relaybus.Key(e.Payload.OrderID)))
}

func (*shop) timeline(ctx context.Context, e *relaybus.RawEvent) error {
	_, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO timeline (order_id, step) VALUES (?, ?)`, e.Key, e.Type)
	return err
}

// mail sends through a server that refuses the first attempt for o-3.
func (s *shop) mail(ctx context.Context, e *relaybus.Event[Order]) error {
	if e.Payload.ID == "o-3" && e.Attempt == 1 {
		return errors.New("mail server: 451 try again later")
	}
	_, err := s.db.DB().ExecContext(ctx,
		`INSERT INTO mails (event_id, order_id, subject) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
		e.ID, e.Payload.ID, "Thank you for order "+e.Payload.ID)
	return err
}
