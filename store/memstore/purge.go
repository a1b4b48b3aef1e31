package memstore

import (
	"context"
	"slices"

	"github.com/relaybus-go/relaybus/store"
)

// Purge deletes one batch of what has outlived its retention; see
// [store.Purger].
func (s *Store) Purge(ctx context.Context, r store.PurgeRequest) (store.PurgeResult, error) {
	var result store.PurgeResult
	err := s.operate(ctx, "purge", func(op string) error {
		if r.Limit < 1 {
			return store.NewError(op, store.ErrInvalidArgument, "the limit must be at least 1", nil)
		}
		p := purge{db: s.db, by: s, completed: ever, dead: ever}
		if !r.CompletedBefore.IsZero() {
			p.completed = millis(r.CompletedBefore)
		}
		if !r.DeadBefore.IsZero() {
			p.dead = millis(r.DeadBefore)
		}
		for range r.Limit {
			if !p.one(&result) {
				return nil
			}
		}
		result.More = p.due()
		return nil
	})
	return result, err
}

// purge has the cutoffs of a purge, ever for what is kept.
type purge struct {
	db              *database
	by              *Store
	completed, dead int64
}

// due says that there is something to delete.
func (p purge) due() bool {
	return p.oldCompletion() != nil || p.oldDead() != nil || p.oldEvent() != nil
}

// one deletes one row, or returns false.
func (p purge) one(result *store.PurgeResult) bool {
	if c := p.oldCompletion(); c != nil {
		p.db.history.remove(c)
		c.event.history = slices.DeleteFunc(c.event.history, func(other *completion) bool { return other == c })
		result.History++
		return true
	}
	if d := p.oldDead(); d != nil {
		p.db.remove(p.by, d)
		result.Deliveries++
		return true
	}
	if e := p.oldEvent(); e != nil {
		p.db.retained.remove(e)
		p.db.log.remove(e)
		delete(p.db.events, e.data.ID)
		result.Events++
		return true
	}
	return false
}

func (p purge) oldCompletion() *completion {
	if c, ok := p.db.history.first(); ok && c.at < p.completed {
		return c
	}
	return nil
}

func (p purge) oldDead() *delivery {
	if d, ok := p.db.dead.first(); ok && d.died < p.dead {
		return d
	}
	return nil
}

// oldEvent returns an event without deliveries that nothing keeps: its last
// completion is old enough, or it never had a delivery and is old enough, or
// all that it had died and were purged.
func (p purge) oldEvent() *event {
	e, ok := p.db.retained.first()
	if ok && (e.since < p.completed || (e.since == ever && p.dead != ever)) {
		return e
	}
	return nil
}
