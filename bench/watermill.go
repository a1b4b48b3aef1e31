package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Settings of watermill-sql.
const (
	watermillTopic = "orders"
	// watermillBatch is how many messages a tuned subscriber reads in one
	// transaction. Its documentation names no best number, only that more are
	// faster, and redelivered after a crash; the default is 100.
	watermillBatch = 1000
	// watermillPoll is the wait of a tuned subscriber that found nothing.
	watermillPoll = time.Millisecond
)

// watermillPeer is watermill-sql, by its bare publisher and subscribers: the router
// on top of them would only cost. Its default schema is a log, whose readers are
// consumer groups, one for each handler. Its queue schema knows no groups: each
// handler has a topic. Neither has ordering keys.
type watermillPeer struct {
	setting

	pool   *pgxpool.Pool
	schema watermillsql.SchemaAdapter
	offset watermillsql.OffsetsAdapter
	// topics has the one of the log, or one for each handler.
	topics []string
	// group is the consumer group of a handler; empty for the queue schema.
	group func(handler int) string
}

func openWatermill(ctx context.Context, e setting) (queue, error) {
	w := &watermillPeer{
		setting: e,
		schema:  watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: e.watermillBatch()},
		offset:  watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		topics:  []string{watermillTopic},
		group:   func(handler int) string { return fmt.Sprintf("handler-%d", handler) },
	}
	return w, w.open(ctx)
}

func openWatermillQueue(ctx context.Context, e setting) (queue, error) {
	w := &watermillPeer{
		setting: e,
		schema:  watermillsql.PostgreSQLQueueSchema{SubscribeBatchSize: e.watermillBatch()},
		offset:  watermillsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true},
		group:   func(int) string { return "" },
	}
	for i := range e.handlers {
		w.topics = append(w.topics, fmt.Sprintf("%s_%d", watermillTopic, i))
	}
	return w, w.open(ctx)
}

// watermillBatch is 0 for the default.
func (e setting) watermillBatch() int {
	if e.defaults {
		return 0
	}
	return watermillBatch
}

func (w *watermillPeer) open(ctx context.Context) (err error) {
	if w.pool, err = openPool(ctx, w.address); err != nil || w.existing {
		return err
	}
	for i, topic := range w.topics {
		subscriber, err := w.subscriber(i, watermillsql.BeginnerFromPgx(w.pool))
		if err == nil {
			err = subscriber.SubscribeInitialize(topic)
		}
		if err != nil {
			return errors.Join(err, w.close())
		}
	}
	return nil
}

func (w *watermillPeer) subscriber(handler int, db watermillsql.Beginner) (*watermillsql.Subscriber, error) {
	cfg := watermillsql.SubscriberConfig{
		ConsumerGroup:  w.group(handler),
		SchemaAdapter:  w.schema,
		OffsetsAdapter: w.offset,
	}
	if !w.defaults {
		cfg.PollInterval = watermillPoll
	}
	return watermillsql.NewSubscriber(db, cfg, nil)
}

func (w *watermillPeer) publish(ctx context.Context, first int64, n int) error {
	payloads := make([][]byte, n)
	for i := range payloads {
		var err error
		if payloads[i], err = json.Marshal(newOrder(first + int64(i))); err != nil {
			return err
		}
	}
	return withOrder(ctx, w.pool, newOrder(first), func(tx pgx.Tx) error {
		publisher, err := watermillsql.NewPublisher(watermillsql.TxFromPgx(tx), watermillsql.PublisherConfig{SchemaAdapter: w.schema}, nil)
		if err != nil {
			return err
		}
		for _, topic := range w.topics {
			messages := make([]*message.Message, n)
			for i, payload := range payloads {
				messages[i] = message.NewMessageWithContext(ctx, watermill.NewUUID(), payload)
			}
			if err := publisher.Publish(topic, messages...); err != nil {
				return err
			}
		}
		return publisher.Close()
	})
}

func (w *watermillPeer) load(ctx context.Context, n int) error {
	return inBatches(n, func(first int64, n int) error { return w.publish(ctx, first, n) })
}

func (w *watermillPeer) work(ctx context.Context, handled func(order), done func()) (stop func() error, err error) {
	var group sync.WaitGroup
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, f := range stops {
			errs = append(errs, f())
		}
		group.Wait()
		return errors.Join(errs...)
	}
	for i := range w.handlers {
		g := newGate(watermillsql.BeginnerFromPgx(w.pool), done)
		subscriber, err := w.subscriber(i, g)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		messages, err := subscriber.Subscribe(ctx, w.topics[min(i, len(w.topics)-1)])
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		stops = append(stops, func() error {
			g.shut()
			return errors.Join(subscriber.Close(), g.err())
		})
		group.Go(func() {
			for m := range messages {
				if err := handleBody(m.Payload, handled); err != nil {
					g.fail(err)
				}
				g.handled()
				m.Ack()
			}
		})
	}
	return stop, nil
}

func (w *watermillPeer) count(ctx context.Context) (tally, error) {
	var waiting []string
	for i := range w.handlers {
		if w.group(i) == "" {
			waiting = append(waiting, fmt.Sprintf(`SELECT count(*) FROM "watermill_%s" WHERE NOT acked`, w.topics[i]))
			continue
		}
		waiting = append(waiting, fmt.Sprintf(`SELECT count(*) FROM "watermill_%[1]s" m WHERE NOT EXISTS (
			SELECT FROM "watermill_offsets_%[1]s" o WHERE o.consumer_group = '%[2]s'
			AND (m.transaction_id, m."offset") <= (o.last_processed_transaction_id, o.offset_acked))`, watermillTopic, w.group(i)))
	}
	return countPool(ctx, w.pool, waiting...)
}

func (w *watermillPeer) close() error {
	w.pool.Close()
	return nil
}
