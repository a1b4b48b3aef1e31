package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/relaybus-go/relaybus/store"
)

type listSQL struct {
	listRunning, listBuried, listDeliveries, listHistory, listDead, countDeliveries, countHistory, getEvent string
	oldest, runningAll, names                                                                               string
}

// The columns of a listing, from a delivery or its record in the history.
const (
	itemColumns  = `SELECT d.event, d.handler, h.id, d.state, d.gen, d.attempts, d.lost, d.due, d.updated, coalesce(d.error, ''), `
	eventColumns = `e.seq, e.id, e.type, e.source, coalesce(e.key, ''), e.created,
		coalesce(e.correlation, ''), coalesce(e.causation, '')`
	filters = ` AND ($1::text = '' OR h.id = $1) AND ($2::text = '' OR e.type = $2) AND ($3::text = '' OR e.id = $3)
		AND ($4::text = '' OR e.key = $4) AND ($5::bigint IS NULL OR e.created >= $5) AND ($6::bigint IS NULL OR e.created < $6)`
	page = ` WHERE d.event >= $11 AND (d.event, d.handler) < ($7, $8) AND d.state BETWEEN $9 AND $10`
)

func newListSQL(c Config) listSQL {
	// Each delivery brings its event and its handler, in the order in which an
	// index has them: no plan reads all of them first, to sort them.
	const joined = ` CROSS JOIN LATERAL (SELECT * FROM {t:events} e WHERE e.seq = d.event LIMIT 1) e
		CROSS JOIN LATERAL (SELECT h.id FROM {t:handlers} h WHERE h.ref = d.handler LIMIT 1) h WHERE true` + filters
	const newest = ` ORDER BY d.event DESC, d.handler DESC`
	const runs = `(SELECT k.owner, c.event, c.handler, c.gen FROM {t:claims} k
		CROSS JOIN LATERAL unnest(k.events, k.handlers, k.gens) AS c(event, handler, gen))`
	list := func(from string) string {
		return c.named(itemColumns + eventColumns + ` FROM (SELECT d.* FROM ` + from + newest + ` OFFSET 0) d` + joined + newest + ` LIMIT $12`)
	}
	return listSQL{
		listRunning: list(runs + ` r CROSS JOIN LATERAL (SELECT * FROM {t:deliveries} d
			WHERE d.event = r.event AND d.handler = r.handler LIMIT 1) d` + page + ` AND d.gen = r.gen`),
		listBuried:     list(`{t:deliveries} d` + page + ` AND d.state >= 2`),
		listDeliveries: list(`{t:deliveries} d` + page),
		listHistory: list(`(SELECT event, handler, 4::smallint AS state, 0 AS gen, attempts, lost, due, at AS updated, error
			FROM {t:history}) d` + page),
		listDead: c.named(`SELECT d.event, d.handler, d.state, d.gen, d.lane, coalesce(d.key, ''), d.due FROM (SELECT * FROM {t:deliveries} d
			WHERE d.state >= 2 AND d.state <= $7 AND d.updated <= $8 ORDER BY d.event, d.handler OFFSET 0) d` + joined + `
			ORDER BY d.event, d.handler LIMIT $9`),
		countDeliveries: c.named(`SELECT handler, state, count(*) FROM {t:deliveries} GROUP BY handler, state`),
		countHistory:    c.named(`SELECT count(*) FROM {t:history}`),
		getEvent:        c.named(`SELECT ` + eventColumns + `, e.headers, e.payload FROM {t:events} e WHERE e.id = $1`),
		runningAll: c.named(`SELECT r.event, r.handler, r.gen, o.name FROM ` + runs + ` r JOIN {t:owners} o ON o.id = r.owner
			JOIN {t:deliveries} d ON d.event = r.event AND d.handler = r.handler AND d.gen = r.gen AND d.state + 0 = 0`),
		// The first of each lane that does not run, and of what is parked.
		oldest: c.named(`SELECT m.handler, min(m.due) FROM (
			SELECT r.ref AS handler, f.due FROM unnest($1::integer[]) AS r(ref) CROSS JOIN generate_series(0, 255) AS n(lane)
			CROSS JOIN LATERAL (SELECT d.due FROM {t:deliveries} d WHERE d.handler = r.ref AND d.lane = n.lane AND d.state = 0
				AND NOT EXISTS (SELECT FROM unnest($3::bigint[], $4::integer[]) AS x(event, handler)
					WHERE x.event = d.event AND x.handler = d.handler) ORDER BY d.due, d.event LIMIT 1) f
			UNION ALL SELECT d.handler, d.due FROM {t:deliveries} d WHERE d.key IS NOT NULL AND d.state = 1 AND $5) m
			WHERE m.due <= $2 GROUP BY m.handler`),
		names: c.named(`SELECT ref, id FROM {t:handlers} WHERE ref = ANY($1::integer[])`),
	}
}

// item is a delivery as listings read it.
type item struct {
	deliveryKey
	store.Delivery

	state int
	gen   int32
}

func (d *item) scan(scan func(...any) error) error {
	var due, updated, created int64
	e := &d.Event
	var seq int64
	err := scan(&d.event, &d.handler, &d.ID.Handler, &d.state, &d.gen, &d.Attempts, &d.Lost, &due, &updated, &d.Error,
		&seq, &e.ID, &e.Type, &e.Source, &e.Key, &created, &e.CorrelationID, &e.CausationID)
	if err != nil {
		return err
	}
	d.ID.EventID = e.ID
	d.DueAt, d.UpdatedAt, e.CreatedAt = instant(due), instant(updated), instant(created)
	if e.Key != "" {
		e.Sequence = seq
	}
	d.HoldsKey = d.state == stateHeld
	switch d.state {
	case stateReady, stateParked:
		d.Status = store.StatusPending
	case stateCompleted:
		d.Status = store.StatusCompleted
	default:
		d.Status = store.StatusDead
	}
	return nil
}

// states returns the states that the filter can mean.
func states(f store.Filter) (from, to int, ok bool) {
	switch f.Status {
	case "":
		from, to = stateReady, stateCompleted
	case store.StatusPending, store.StatusRunning:
		from, to = stateReady, stateParked
	case store.StatusDead:
		from, to = stateHeld, stateDead
	case store.StatusCompleted:
		from, to = stateCompleted, stateCompleted
	default:
		return 0, 0, false
	}
	if f.HoldsKey {
		from, to = max(from, stateHeld), min(to, stateHeld)
	}
	return from, to, true
}

func checkFilter(op string, f store.Filter) error {
	if _, _, ok := states(f); !ok {
		return invalid(op, "no such status")
	}
	return nil
}

func filterArgs(f store.Filter) []any {
	args := []any{f.Handler, f.EventType, f.EventID, f.Key, nil, nil}
	if !f.From.IsZero() {
		args[4] = f.From.UnixMilli()
	}
	if !f.To.IsZero() {
		args[5] = f.To.UnixMilli()
	}
	return args
}

// List returns a page of deliveries; see [store.Lister].
func (s *Store) List(ctx context.Context, f store.Filter, p store.Page) (store.DeliveryPage, error) {
	const op = "list deliveries"
	from, to, ok := states(f)
	if !ok {
		return store.DeliveryPage{}, invalid(op, "no such status")
	}
	if p.Limit < 1 || p.Limit > store.MaxPageSize {
		return store.DeliveryPage{}, invalid(op, "the limit of a page is not between 1 and 1000")
	}
	at, ok := parseCursor(p.Cursor)
	if !ok {
		return store.DeliveryPage{}, invalid(op, "no such cursor")
	}
	var page store.DeliveryPage
	if from > to {
		return page, s.usable(ctx, op)
	}
	err := s.report(ctx, op, func(ctx context.Context, x *session) error {
		page = store.DeliveryPage{}
		l := listing{session: x, f: f, from: from, to: to, limit: p.Limit + 1}
		if err := l.read(ctx, at); err != nil {
			return err
		}
		list := l.merged()
		if len(list) > p.Limit {
			list = list[:p.Limit]
			last := list[p.Limit-1]
			page.Next = cursor{last.event, last.handler}.String()
		}
		for _, d := range list {
			page.Deliveries = append(page.Deliveries, d.Delivery)
		}
		return nil
	})
	if err != nil {
		return store.DeliveryPage{}, err
	}
	return page, nil
}

// listing reads one page from the deliveries and from the history.
type listing struct {
	*session

	f        store.Filter
	from, to int
	limit    int
	list     []item
}

// owners has the owner of each delivery that runs.
type owners map[deliveryKey]string

// running reads what runs: few of many.
func (x *session) running(ctx context.Context) (owners, error) {
	runs := make(owners)
	err := x.rows(ctx, x.s.sql.runningAll, func(scan func(...any) error) (bool, error) {
		var d deliveryKey
		var gen int32
		var name string
		err := scan(&d.event, &d.handler, &gen, &name)
		runs[d] = name
		return true, err
	})
	return runs, err
}

func (l *listing) read(ctx context.Context, at cursor) error {
	runs, err := l.running(ctx)
	if err != nil {
		return err
	}
	lowest := int64(0)
	if l.f.EventID != "" {
		var e store.Event
		var seq, created int64
		found, err := l.row(ctx, l.s.sql.getEvent, []any{
			&seq, &e.ID, &e.Type, &e.Source, &e.Key, &created, &e.CorrelationID, &e.CausationID, &e.Headers, &e.Payload,
		}, l.f.EventID)
		if err != nil || !found || seq > at.event {
			return err
		}
		if lowest = seq; seq < at.event {
			at = before(seq)
		}
	}
	text := l.s.sql.listDeliveries
	switch {
	case l.f.Status == store.StatusRunning:
		text = l.s.sql.listRunning
	case l.from >= stateHeld:
		text = l.s.sql.listBuried
	}
	// What runs is left out of the pending ones here: up to as many more are read.
	limit := l.limit
	if l.f.Status == store.StatusPending {
		limit += len(runs)
	}
	args := append(filterArgs(l.f), at.event, at.handler, l.from, l.to, lowest, limit)
	if l.from < stateCompleted {
		if err := l.items(ctx, text, runs, args); err != nil {
			return err
		}
	}
	if l.to == stateCompleted {
		return l.items(ctx, l.s.sql.listHistory, runs, args)
	}
	return nil
}

// items reads up to a page of one kind.
func (l *listing) items(ctx context.Context, text string, runs owners, args []any) error {
	return l.rows(ctx, text, func(scan func(...any) error) (bool, error) {
		var d item
		if err := d.scan(scan); err != nil {
			return false, err
		}
		if owner, ok := runs[d.deliveryKey]; ok && d.Status == store.StatusPending {
			d.Status = store.StatusRunning
			d.Owner = owner
		}
		if l.f.Status == "" || l.f.Status == d.Status {
			l.list = append(l.list, d)
		}
		return true, nil
	}, args...)
}

// merged returns both parts in the order of the listing.
func (l *listing) merged() []item {
	slices.SortStableFunc(l.list, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.event, a.event), cmp.Compare(b.handler, a.handler))
	})
	return l.list
}

// GetEvent returns an event with its deliveries; see [store.Lister].
func (s *Store) GetEvent(ctx context.Context, id string) (store.Event, []store.Delivery, error) {
	const op = "get event"
	var e store.Event
	var list []store.Delivery
	err := s.report(ctx, op, func(ctx context.Context, x *session) error {
		var seq, created int64
		list = nil
		found, err := x.row(ctx, s.sql.getEvent, []any{
			&seq, &e.ID, &e.Type, &e.Source, &e.Key, &created, &e.CorrelationID, &e.CausationID, &e.Headers, &e.Payload,
		}, id)
		if err != nil {
			return err
		}
		if !found {
			return store.NewError(op, store.ErrNotFound, "", nil)
		}
		e.CreatedAt = instant(created)
		if e.Key != "" {
			e.Sequence = seq
		}
		l := listing{session: x, f: store.Filter{EventID: e.ID}, to: stateCompleted, limit: store.MaxPageSize}
		if err := l.read(ctx, before(seq)); err != nil {
			return err
		}
		for _, d := range slices.Backward(l.merged()) {
			list = append(list, d.Delivery)
		}
		return nil
	})
	if err != nil {
		return store.Event{}, nil, err
	}
	return e, list, nil
}
