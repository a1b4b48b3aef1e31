package memstore

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Requeue makes dead deliveries due again, all or none; see [store.Operator].
func (s *Store) Requeue(ctx context.Context, ids []store.DeliveryID, now time.Time) error {
	return s.operate(ctx, "requeue deliveries", func(op string) error {
		list := make([]*delivery, 0, len(ids))
		for _, id := range ids {
			d := s.db.find(id.EventID, id.Handler)
			if d == nil {
				return store.NewError(op, store.ErrNotFound, "", nil)
			}
			if d.state != dead {
				return s.db.misplaced(op, d, "the delivery is not dead")
			}
			list = append(list, d)
		}
		for _, d := range list {
			s.db.requeue(s, d, millis(now))
		}
		return nil
	})
}

// RequeueWhere requeues dead deliveries that the filter selects; see
// [store.Operator].
func (s *Store) RequeueWhere(ctx context.Context, f store.Filter, limit int, now time.Time) (int, error) {
	count := 0
	err := s.operate(ctx, "requeue deliveries", func(op string) error {
		if limit < 1 {
			return store.NewError(op, store.ErrInvalidArgument, "the limit must be at least 1", nil)
		}
		if f.Status != "" && f.Status != store.StatusDead {
			return store.NewError(op, store.ErrInvalidArgument, "only dead deliveries can be requeued", nil)
		}
		f.Status = store.StatusDead
		var list []*delivery
		for e := range s.db.selected(f) {
			for _, d := range e.deliveries {
				if len(list) < limit && d.updated <= millis(now) && s.db.selects(f, e, s.db.row(d)) {
					list = append(list, d)
				}
			}
			if len(list) == limit {
				break
			}
		}
		for _, d := range list {
			s.db.requeue(s, d, millis(now))
		}
		count = len(list)
		return nil
	})
	return count, err
}

func (db *database) requeue(by *Store, d *delivery, now int64) {
	if d.state != dead {
		return // It was listed twice.
	}
	db.edit(by, d, now, func(d *delivery) {
		d.state = pending
		d.hold = false
		d.alone = false
		d.due = now
		d.attempts, d.lost = 0, 0
	})
}
