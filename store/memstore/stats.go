package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Stats counts deliveries; see [store.Lister].
func (s *Store) Stats(ctx context.Context, now time.Time) (store.Stats, error) {
	if err := alive(ctx, "count deliveries"); err != nil {
		return store.Stats{}, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	total := store.Stats{Completed: int64(s.db.history.len())}
	oldest := int64(never)
	for _, id := range slices.Sorted(maps.Keys(s.db.handlers)) {
		h := s.db.handlers[id]
		if h.deliveries.len() == 0 {
			continue
		}
		count, due := s.db.count(h, &total, millis(now))
		total.Handlers = append(total.Handlers, count)
		total.Pending += count.Pending
		total.Running += count.Running
		total.Dead += count.Dead
		oldest = min(oldest, due)
	}
	if oldest != never {
		total.OldestDueAt = instant(oldest)
	}
	return total, nil
}

// count counts the deliveries of a handler, and those that hold their key in
// total. It also returns when the oldest that is due became due, or never.
func (db *database) count(h *handler, total *store.Stats, now int64) (store.HandlerStats, int64) {
	count := store.HandlerStats{Handler: h.id}
	oldest := int64(never)
	for d := range h.deliveries.all() {
		switch {
		case d.state == dead:
			count.Dead++
			if d.hold {
				total.Held++
			}
		case db.running[d] != nil:
			count.Running++
		default:
			count.Pending++
			if d.due <= now {
				oldest = min(oldest, d.due)
			}
		}
	}
	if oldest != never {
		count.OldestDueAt = instant(oldest)
	}
	return count, oldest
}
