package simulation_test

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func (s *faultyStore) RecordHandlers(ctx context.Context, entries []store.HandlerEntry, now time.Time) error {
	_, err := s.do(ctx, "record handlers", func(ctx context.Context) error {
		return s.inner.RecordHandlers(ctx, entries, now)
	})
	return err
}

func (s *faultyStore) Handlers(ctx context.Context) ([]store.HandlerEntry, error) {
	return reads(ctx, s, "read handlers", s.inner.Handlers)
}

func (s *faultyStore) RetireHandler(ctx context.Context, id string, now time.Time) error {
	_, err := s.do(ctx, "retire handler", func(ctx context.Context) error {
		return s.inner.RetireHandler(ctx, id, now)
	})
	return err
}

func (s *faultyStore) PauseHandler(ctx context.Context, id string, paused bool, now time.Time) error {
	_, err := s.do(ctx, "pause handler", func(ctx context.Context) error {
		err := s.inner.PauseHandler(ctx, id, paused, now)
		if err == nil {
			s.history.pause(id, paused)
		}
		return err
	})
	return err
}

func (s *faultyStore) List(ctx context.Context, f store.Filter, p store.Page) (store.DeliveryPage, error) {
	return reads(ctx, s, "list deliveries", func(ctx context.Context) (store.DeliveryPage, error) {
		return s.inner.List(ctx, f, p)
	})
}

func (s *faultyStore) GetEvent(ctx context.Context, id string) (store.Event, []store.Delivery, error) {
	var deliveries []store.Delivery
	event, err := reads(ctx, s, "get event", func(ctx context.Context) (event store.Event, err error) {
		event, deliveries, err = s.inner.GetEvent(ctx, id)
		return event, err
	})
	if err != nil {
		return store.Event{}, nil, err
	}
	return event, deliveries, nil
}

func (s *faultyStore) Stats(ctx context.Context, now time.Time) (store.Stats, error) {
	return reads(ctx, s, "count deliveries", func(ctx context.Context) (store.Stats, error) {
		return s.inner.Stats(ctx, now)
	})
}

// reads is do for what changes nothing.
func reads[T any](ctx context.Context, s *faultyStore, op string, read func(context.Context) (T, error)) (T, error) {
	var result, none T
	applied, err := s.do(ctx, op, func(ctx context.Context) error {
		var err error
		result, err = read(ctx)
		return err
	})
	if err != nil {
		if applied {
			err = store.NewError(op, store.ErrUnavailable, "fault", nil)
		}
		return none, err
	}
	return result, nil
}

func (s *faultyStore) Requeue(ctx context.Context, ids []store.DeliveryID, now time.Time) error {
	_, err := s.do(ctx, "requeue deliveries", func(ctx context.Context) error {
		err := s.inner.Requeue(ctx, ids, now)
		if err == nil {
			for _, id := range ids {
				s.history.operated(id, requeued)
			}
		}
		return err
	})
	return err
}

func requeued(d *deliveryRecord) {
	d.moved = true
	d.dead, d.held = false, false
	d.attempts, d.lost = 0, 0
}

func (s *faultyStore) RequeueWhere(ctx context.Context, f store.Filter, limit int, now time.Time) (int, error) {
	n := 0
	_, err := s.do(ctx, "requeue deliveries", func(ctx context.Context) error {
		f.Status = store.StatusDead
		before, err := listAll(ctx, s.inner, f)
		if err != nil {
			return err
		}
		if n, err = s.inner.RequeueWhere(ctx, f, limit, now); err != nil {
			return err
		}
		after, err := listAll(context.WithoutCancel(ctx), s.inner, f)
		if err != nil {
			return err
		}
		still := make(map[store.DeliveryID]bool)
		for _, row := range after {
			still[row.ID] = true
		}
		for _, row := range before {
			if !still[row.ID] {
				s.history.operated(row.ID, requeued)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (s *faultyStore) BuryPending(ctx context.Context, id store.DeliveryID, reason string, now time.Time) error {
	_, err := s.do(ctx, "bury pending delivery", func(ctx context.Context) error {
		err := s.inner.BuryPending(ctx, id, reason, now)
		if err == nil {
			s.history.operated(id, func(d *deliveryRecord) { d.moved, d.dead, d.held = true, true, false })
		}
		return err
	})
	return err
}

func (s *faultyStore) ReschedulePending(ctx context.Context, id store.DeliveryID, dueAt, now time.Time) error {
	_, err := s.do(ctx, "reschedule pending delivery", func(ctx context.Context) error {
		return s.inner.ReschedulePending(ctx, id, dueAt, now)
	})
	return err
}

func (s *faultyStore) Skip(ctx context.Context, id store.DeliveryID, now time.Time) error {
	_, err := s.do(ctx, "skip dead delivery", func(ctx context.Context) error {
		err := s.inner.Skip(ctx, id, now)
		if err == nil {
			s.history.operated(id, func(d *deliveryRecord) { d.held = false })
		}
		return err
	})
	return err
}

func (s *faultyStore) CancelEvent(ctx context.Context, eventID string, now time.Time) error {
	_, err := s.do(ctx, "cancel event", func(ctx context.Context) error {
		err := s.inner.CancelEvent(ctx, eventID, now)
		if err == nil {
			s.history.cancelled(eventID)
		}
		return err
	})
	return err
}

func (s *faultyStore) DropPending(ctx context.Context, handler string, limit int, now time.Time) (int, error) {
	n := 0
	_, err := s.do(ctx, "drop pending deliveries", func(ctx context.Context) error {
		var err error
		n, err = s.inner.DropPending(ctx, handler, limit, now)
		return err
	})
	return n, err
}

func (s *faultyStore) Purge(ctx context.Context, r store.PurgeRequest) (store.PurgeResult, error) {
	return reads(ctx, s, "purge", func(ctx context.Context) (store.PurgeResult, error) {
		return s.inner.Purge(ctx, r)
	})
}
