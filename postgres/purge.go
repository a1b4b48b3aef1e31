package postgres

import (
	"context"
	"math"

	"github.com/relaybus-go/relaybus/store"
)

type purgeSQL struct {
	oldHistory, oldCompletions, setCompletions, dropCompletions, oldDead, dropDead, oldUnheard string
	lockEvents, totals, setAccounts, dropAccounts, dropEvents, addCompletions                  string
}

func newPurgeSQL(c Config) purgeSQL {
	return purgeSQL{
		oldHistory: c.named(`DELETE FROM {t:history} h USING (SELECT event, handler FROM {t:history} WHERE at < $1
			ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED) o WHERE h.event = o.event AND h.handler = o.handler`),
		// Rows that another purge has locked are left to it.
		oldCompletions:  c.named(`SELECT id, at, events FROM {t:completions} WHERE at < $1 ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED`),
		setCompletions:  c.named(`UPDATE {t:completions} SET events = $2 WHERE id = $1`),
		dropCompletions: c.named(`DELETE FROM {t:completions} WHERE id = ANY($1::bigint[])`),
		oldDead: c.named(`SELECT d.event, d.handler, d.state, d.gen, d.lane, coalesce(d.key, ''), d.due FROM {t:handlers} h
			CROSS JOIN LATERAL (SELECT * FROM {t:deliveries} d WHERE d.handler = h.ref AND d.state = 3 AND d.updated < $1
				ORDER BY d.updated, d.event LIMIT $2 FOR UPDATE SKIP LOCKED) d LIMIT $2`),
		dropDead: c.named(`DELETE FROM {t:deliveries} d WHERE d.event = ANY($1::bigint[])
			AND CASE WHEN d.state = 3 THEN (d.event, d.handler) IN (SELECT * FROM unnest($1::bigint[], $2::integer[])) ELSE false END`),
		oldUnheard: c.named(`SELECT seq FROM {t:events} WHERE handlers = '{}' AND created < $1 ORDER BY created LIMIT $2 FOR UPDATE SKIP LOCKED`),
		// The accounts are read after the lock: what another purge has added to them
		// before it let go is not in the view of the statement that waited for it.
		lockEvents: c.named(`SELECT seq FROM {t:events} WHERE seq = ANY($1::bigint[]) ORDER BY seq FOR UPDATE`),
		totals: c.named(`SELECT e.seq, cardinality(e.handlers), coalesce(a.done, 0), a.last FROM {t:events} e
			LEFT JOIN {t:accounts} a ON a.event = e.seq WHERE e.seq = ANY($1::bigint[]) ORDER BY e.seq`),
		setAccounts: c.named(`INSERT INTO {t:accounts} (event, done, last) SELECT * FROM unnest($1::bigint[], $2::integer[], $3::bigint[])
			ON CONFLICT (event) DO UPDATE SET done = excluded.done, last = excluded.last`),
		dropAccounts:   c.named(`DELETE FROM {t:accounts} WHERE event = ANY($1::bigint[])`),
		dropEvents:     c.named(`DELETE FROM {t:events} WHERE seq = ANY($1::bigint[])`),
		addCompletions: c.named(`INSERT INTO {t:completions} (at, events) SELECT at, ARRAY[event] FROM unnest($1::bigint[], $2::bigint[]) AS c(at, event)`),
	}
}

// Purge deletes one batch; see [store.Purger].
//
// A completion is an entry of a list, and an event goes when all handlers that it
// ever had are accounted for: by entries older than the cutoff, or by dead
// deliveries that were purged. Several processes may purge at once.
func (s *Store) Purge(ctx context.Context, r store.PurgeRequest) (store.PurgeResult, error) {
	const op = "purge"
	if r.Limit < 1 {
		return store.PurgeResult{}, invalid(op, "the limit must be at least 1")
	}
	var result store.PurgeResult
	err := s.change(ctx, op, func(ctx context.Context, x *session) error {
		p := &purging{session: x, r: r, left: min(r.Limit, math.MaxInt32-1), gone: make(map[int64]*account)}
		for _, step := range []func(context.Context) error{p.history, p.completions, p.dead, p.settle, p.unheard} {
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

	r      store.PurgeRequest
	left   int
	more   bool
	result store.PurgeResult
	// gone counts what is accounted for of each event, order has their order.
	gone  map[int64]*account
	order []int64
}

// account is how many deliveries of an event are gone for good, and when the last
// of them completed, or never.
type account struct {
	done int32
	last int64
}

// never stands for the time of a completion that was none.
const never = math.MinInt64

func (p *purging) cutoff() int64 { return p.r.CompletedBefore.UnixMilli() }

func (p *purging) count(event, completed int64) {
	a := p.gone[event]
	if a == nil {
		a = &account{last: never}
		p.gone[event] = a
		p.order = append(p.order, event)
	}
	a.done++
	a.last = max(a.last, completed)
}

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
	type record struct {
		id, at int64
		events []int64
	}
	var list []record
	err := p.rows(ctx, p.s.sql.oldCompletions, func(scan func(...any) error) (bool, error) {
		var c record
		err := scan(&c.id, &c.at, &c.events)
		list = append(list, c)
		return true, err
	}, p.cutoff(), p.left+1)
	if err != nil {
		return err
	}
	var done []int64
	for _, c := range list {
		if p.left <= 0 {
			p.more = true
			break
		}
		part := c.events[:min(len(c.events), p.left)]
		for _, event := range part {
			p.left--
			p.count(event, c.at)
		}
		if len(part) == len(c.events) {
			done = append(done, c.id)
			continue
		}
		p.more = true
		if _, err := p.exec(ctx, p.s.sql.setCompletions, c.id, c.events[len(part):]); err != nil {
			return err
		}
	}
	_, err = p.exec(ctx, p.s.sql.dropCompletions, done)
	return err
}

func (p *purging) dead(ctx context.Context) error {
	if p.r.DeadBefore.IsZero() {
		return nil
	}
	// One more than fits tells whether another batch has something to do.
	list, err := p.deliveries(ctx, p.s.sql.oldDead, p.r.DeadBefore.UnixMilli(), p.left+1)
	if err != nil || len(list) == 0 {
		return err
	}
	if len(list) > p.left {
		list, p.more = list[:p.left], true
	}
	events, handlers := numbersOf(list)
	n, err := p.exec(ctx, p.s.sql.dropDead, events, handlers)
	if err != nil {
		return err
	}
	p.left -= len(list)
	p.result.Deliveries += n
	for _, event := range events {
		p.count(event, never)
	}
	return nil
}

// settle deletes the events of which everything is accounted for, and notes how
// much that is of the others.
func (p *purging) settle(ctx context.Context) error {
	if len(p.order) == 0 {
		return nil
	}
	if _, err := p.numbers(ctx, p.s.sql.lockEvents, p.order); err != nil {
		return err
	}
	var drop, forget, keep, again, times, lasts []int64
	var counts []int32
	err := p.rows(ctx, p.s.sql.totals, func(scan func(...any) error) (bool, error) {
		var event int64
		var total, done int32
		var last *int64
		if err := scan(&event, &total, &done, &last); err != nil {
			return false, err
		}
		a := p.gone[event]
		a.done += done
		if last != nil {
			a.last = max(a.last, *last)
		}
		switch {
		case a.done < total:
			keep, counts, lasts = append(keep, event), append(counts, a.done), append(lasts, a.last)
		case a.last != never && (p.r.CompletedBefore.IsZero() || a.last >= p.cutoff()):
			// It has completions whose retention this purge is not about.
			keep, counts, lasts = append(keep, event), append(counts, a.done-1), append(lasts, a.last)
			again, times = append(again, event), append(times, a.last)
		default:
			drop = append(drop, event)
			if total > 1 {
				forget = append(forget, event)
			}
		}
		return true, nil
	}, p.order)
	if err != nil {
		return err
	}
	if len(keep) > 0 {
		if _, err := p.exec(ctx, p.s.sql.setAccounts, keep, counts, lasts); err != nil {
			return err
		}
	}
	if len(again) > 0 {
		if _, err := p.exec(ctx, p.s.sql.addCompletions, times, again); err != nil {
			return err
		}
	}
	if len(forget) > 0 {
		if _, err := p.exec(ctx, p.s.sql.dropAccounts, forget); err != nil {
			return err
		}
	}
	return p.drop(ctx, drop)
}

func (p *purging) drop(ctx context.Context, events []int64) error {
	if len(events) == 0 {
		return nil
	}
	n, err := p.exec(ctx, p.s.sql.dropEvents, events)
	p.result.Events += n
	return err
}

func (p *purging) unheard(ctx context.Context) error {
	if p.r.CompletedBefore.IsZero() {
		return nil
	}
	events, err := p.numbers(ctx, p.s.sql.oldUnheard, p.cutoff(), p.left+1)
	if err != nil {
		return err
	}
	if len(events) > p.left {
		events, p.more = events[:p.left], true
	}
	p.left -= len(events)
	return p.drop(ctx, events)
}
