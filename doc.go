// Package relaybus is a durable event bus for Go services.
//
// Events are written in the caller's own database transaction, so a committed
// change always has its events and a rolled-back one never does. Each handler
// of an event gets a delivery of its own: at least once, in commit order per
// ordering key, with retries and dead letters. A transactional handler's writes
// commit together with its delivery's completion.
//
//	var OrderPlaced = relaybus.Define[Order]("order.placed.v1")
//
//	db, err := sqlite.Open("shop.db")
//	bus, err := relaybus.New(db, relaybus.Config{Source: "orders"})
//	err = bus.Subscribe(
//		OrderPlaced.Handle("send-confirmation", func(ctx context.Context, e *relaybus.Event[Order]) error {
//			return mail.Send(ctx, e.Payload.Email)
//		}),
//	)
//	err = bus.Transaction(ctx, func(ctx context.Context) error {
//		if _, err := sqlite.Tx(ctx).ExecContext(ctx, `INSERT INTO orders …`); err != nil {
//			return err
//		}
//		return bus.Publish(ctx, OrderPlaced.New(Order{ID: "o-1"}, relaybus.Key("o-1")))
//	})
//	err = bus.Run(ctx)
//
// # Publishing
//
// [Bus.Publish] joins the transaction that the context carries: the one that
// [Bus.Transaction] opened, or the one that [Config.Resolver] finds.
// [Bus.PublishTx] joins a transaction that the caller opened by the driver's
// own means. Without one it is an error, unless Config.TransactionMode says
// otherwise. The result of a publish is one of three: see [OutcomeOf].
//
// # Handling
//
// A handler steers by what it returns: nil completes the delivery, an error
// retries it with backoff until the attempts are used up, [Permanent] gives up
// at once, [RetryAfter] chooses the delay, [Unavailable] says that something
// the handler needs is down. Its context ends when its time is over, when its
// lease is lost, and when the bus has waited long enough for it while stopping.
package relaybus
