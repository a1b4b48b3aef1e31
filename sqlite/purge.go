package sqlite

import (
	"context"
	"math"

	"github.com/relaybus-go/relaybus/store"
)

type purgeSQL struct {
	oldHistory, oldCompletions, setCompletions, dropCompletions, oldDead, oldUnheard string
	totalOf, account, accountOf, dropAccount, dropEvent, lastSequence                string
}

func newPurgeSQL(q func(string) string) purgeSQL {
	return purgeSQL{
		oldHistory: q(`DELETE FROM {p}history WHERE (event, handler) IN (
			SELECT event, handler FROM {p}history INDEXED BY {p}history_at WHERE at < ?1 ORDER BY at LIMIT ?2)`),
		oldCompletions: q(`SELECT id, at, list FROM {p}completions INDEXED BY {p}completions_at
			WHERE at < ?1 ORDER BY at, id LIMIT 1`),
		setCompletions:  q(`UPDATE {p}completions SET list = ?2 WHERE id = ?1`),
		dropCompletions: q(`DELETE FROM {p}completions WHERE id = ?1`),
		oldDead: q(`SELECT event, handler, state, gen, lane, ifnull(key, '')
			FROM {p}deliveries INDEXED BY {p}deliveries_died WHERE state = 3 AND updated < ?1 ORDER BY updated`),
		oldUnheard: q(`SELECT seq FROM {p}events INDEXED BY {p}events_unheard
			WHERE total = 0 AND created < ?1 ORDER BY created LIMIT ?2`),
		totalOf: q(`SELECT total FROM {p}events WHERE seq = ?1`),
		account: q(`INSERT INTO {p}accounts (event, done, last) VALUES (?1, ?2, ?3)
			ON CONFLICT (event) DO UPDATE SET done = excluded.done, last = excluded.last`),
		accountOf:    q(`SELECT done, last FROM {p}accounts WHERE event = ?1`),
		dropAccount:  q(`DELETE FROM {p}accounts WHERE event = ?1`),
		dropEvent:    q(`DELETE FROM {p}events WHERE seq = ?1`),
		lastSequence: q(`SELECT ifnull(max(seq), 0) FROM {p}events`),
	}
}

// Purge deletes one batch; see [store.Purger].
//
// A completion is a line in a list, and an event goes when all handlers that it
// ever had are accounted for: by lines older than the cutoff, or by dead
// deliveries that were purged.
func (s *Store) Purge(ctx context.Context, r store.PurgeRequest) (store.PurgeResult, error) {
	if r.Limit < 1 {
		return store.PurgeResult{}, invalid("purge", "the limit must be at least 1")
	}
	var result store.PurgeResult
	err := s.write(ctx, "purge", func(ctx context.Context, x *session) error {
		p := &purging{session: x, r: r, left: min(r.Limit, math.MaxInt32)}
		for _, step := range []func(context.Context) error{p.history, p.completions, p.dead, p.unheard, p.keepSequence} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		result = p.result
		result.More = p.more
		return nil
	})
	if err != nil {
		return store.PurgeResult{}, err
	}
	return result, nil
}

// purging is one batch. left is how many rows it may still delete.
type purging struct {
	*session
	r       store.PurgeRequest
	left    int
	more    bool
	result  store.PurgeResult
	highest int64 // of the sequences that were deleted
}

func (p *purging) cutoff() int64 { return p.r.CompletedBefore.UnixMilli() }

// history goes first, so that an event is there as long as its history is.
func (p *purging) history(ctx context.Context) error {
	if p.r.CompletedBefore.IsZero() {
		return nil
	}
	n, err := p.exec(ctx, p.s.sql.oldHistory, p.cutoff(), p.left)
	p.result.History = n
	p.left -= int(n)
	return err
}

func (p *purging) completions(ctx context.Context) error {
	if p.r.CompletedBefore.IsZero() {
		return nil
	}
	for {
		var id, at int64
		var text string
		found, err := p.row(ctx, p.s.sql.oldCompletions, []any{&id, &at, &text}, p.cutoff())
		if err != nil || !found {
			return err
		}
		if p.left <= 0 {
			p.more = true
			return nil
		}
		list, err := parseNumbers(text)
		if err != nil {
			return err
		}
		part := list[:min(len(list), p.left)]
		for _, event := range part {
			p.left--
			if err := p.accountFor(ctx, event, at); err != nil {
				return err
			}
		}
		if len(part) == len(list) {
			_, err = p.exec(ctx, p.s.sql.dropCompletions, id)
		} else {
			_, err = p.exec(ctx, p.s.sql.setCompletions, id, numberList(list[len(part):]))
		}
		if err != nil {
			return err
		}
	}
}

// never stands for the time of a completion that was none.
const never = math.MinInt64

// accountFor counts one delivery of an event as gone for good. completed is when
// it completed, or never.
func (p *purging) accountFor(ctx context.Context, event, completed int64) error {
	var total, done int64
	found, err := p.row(ctx, p.s.sql.totalOf, []any{&total}, event)
	if err != nil || !found {
		return err
	}
	if total <= 1 {
		return p.dropEvent(ctx, event)
	}
	last := int64(never)
	if _, err := p.row(ctx, p.s.sql.accountOf, []any{&done, &last}, event); err != nil {
		return err
	}
	last = max(last, completed)
	if done+1 < total {
		_, err := p.exec(ctx, p.s.sql.account, event, done+1, last)
		return err
	}
	if last != never && (p.r.CompletedBefore.IsZero() || last >= p.cutoff()) {
		// It has completions whose retention this purge is not about.
		_, err := p.exec(ctx, p.s.sql.addCompletions, last, "["+numberText(event)+"]")
		return err
	}
	if _, err := p.exec(ctx, p.s.sql.dropAccount, event); err != nil {
		return err
	}
	return p.dropEvent(ctx, event)
}

func (p *purging) dropEvent(ctx context.Context, event int64) error {
	n, err := p.exec(ctx, p.s.sql.dropEvent, event)
	p.result.Events += n
	p.highest = max(p.highest, event)
	return err
}

func (p *purging) dead(ctx context.Context) error {
	if p.r.DeadBefore.IsZero() {
		return nil
	}
	// One more than fits tells whether another batch has something to do.
	list, err := p.deliveries(ctx, p.s.sql.oldDead, p.left+1, p.r.DeadBefore.UnixMilli())
	if err != nil {
		return err
	}
	if len(list) > p.left {
		list, p.more = list[:p.left], true
	}
	for _, d := range list {
		p.left--
		if _, err := p.exec(ctx, p.s.sql.remove, d.event, d.handler); err != nil {
			return err
		}
		p.result.Deliveries++
		if err := p.accountFor(ctx, d.event, never); err != nil {
			return err
		}
	}
	return nil
}

func (p *purging) unheard(ctx context.Context) error {
	if p.r.CompletedBefore.IsZero() {
		return nil
	}
	var events []int64
	err := p.rows(ctx, p.s.sql.oldUnheard, func(scan func(...any) error) (bool, error) {
		var event int64
		err := scan(&event)
		events = append(events, event)
		return true, err
	}, p.cutoff(), p.left+1)
	if err != nil {
		return err
	}
	if len(events) > p.left {
		events, p.more = events[:p.left], true
	}
	for _, event := range events {
		p.left--
		if err := p.dropEvent(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

// keepSequence makes sure that no sequence is given out twice.
func (p *purging) keepSequence(ctx context.Context) error {
	if p.highest == 0 {
		return nil
	}
	var last int64
	if _, err := p.row(ctx, p.s.sql.lastSequence, []any{&last}); err != nil || last >= p.highest {
		return err
	}
	var kept int64
	if _, err := p.row(ctx, p.s.sql.getMeta, []any{&kept}, metaSequence); err != nil {
		return err
	}
	_, err := p.exec(ctx, p.s.sql.putMeta, metaSequence, max(kept, p.highest))
	return err
}
