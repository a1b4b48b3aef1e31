package sqlite

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

type listSQL struct {
	listOne, listBuried, listDeliveries, listHistory, listDead, countDeliveries, countHistory, getEvent, claimsOfAll, ownerName, oldestReady, oldestParked string
}

// The columns of a listing, from a delivery or its record in the history.
const (
	eventColumns = `e.seq, e.id, e.type, e.source, ifnull(e.key, ''), e.created,
		ifnull(e.correlation, ''), ifnull(e.causation, '')`
	filters = ` AND (?1 = '' OR h.id = ?1) AND (?2 = '' OR e.type = ?2) AND (?3 = '' OR e.id = ?3)
		AND (?4 = '' OR e.key = ?4) AND (?5 IS NULL OR e.created >= ?5) AND (?6 IS NULL OR e.created < ?6)`
	after = ` AND d.event BETWEEN ?11 AND ?7 AND (d.event < ?7 OR d.handler > ?8)`
)

func newListSQL(q func(string) string) listSQL {
	const columns = `SELECT d.event, d.handler, h.id, d.state, d.gen, d.attempts, d.lost, d.due, d.updated,
		ifnull(d.error, ''), `
	return listSQL{
		listOne: q(columns + eventColumns + ` FROM {p}deliveries d
			CROSS JOIN {p}events e ON e.seq = d.event CROSS JOIN {p}handlers h ON h.ref = d.handler
			WHERE d.event = ?12 AND d.handler = ?13 AND d.state BETWEEN ?9 AND ?10` + filters + after),
		listBuried: q(columns + eventColumns + ` FROM {p}deliveries d INDEXED BY {p}deliveries_dead
			CROSS JOIN {p}events e ON e.seq = d.event CROSS JOIN {p}handlers h ON h.ref = d.handler
			WHERE d.state >= 2 AND d.state BETWEEN ?9 AND ?10` + filters + after + ` ORDER BY d.event DESC, d.handler`),
		listDeliveries: q(columns + eventColumns + ` FROM {p}deliveries d
			CROSS JOIN {p}events e ON e.seq = d.event CROSS JOIN {p}handlers h ON h.ref = d.handler
			WHERE d.state BETWEEN ?9 AND ?10` + filters + after + ` ORDER BY d.event DESC, d.handler`),
		listHistory: q(`SELECT d.event, d.handler, h.id, 4, 0, d.attempts, d.lost, d.due, d.at, ifnull(d.error, ''), ` +
			eventColumns + ` FROM {p}history d
			CROSS JOIN {p}events e ON e.seq = d.event CROSS JOIN {p}handlers h ON h.ref = d.handler
			WHERE ?9 <= 4 AND ?10 >= 4` + filters + after + ` ORDER BY d.event DESC, d.handler`),
		listDead: q(`SELECT d.event, d.handler, d.state, d.gen, d.lane, ifnull(d.key, '')
			FROM {p}deliveries d INDEXED BY {p}deliveries_dead
			CROSS JOIN {p}events e ON e.seq = d.event CROSS JOIN {p}handlers h ON h.ref = d.handler
			WHERE d.state >= 2 AND d.state <= ?7 AND d.updated <= ?8` + filters + ` ORDER BY d.event, d.handler`),
		countDeliveries: q(`SELECT handler, state, count(*) FROM {p}deliveries GROUP BY handler, state`),
		countHistory:    q(`SELECT count(*) FROM {p}history`),
		getEvent:        q(`SELECT ` + eventColumns + `, e.headers, e.payload FROM {p}events e WHERE e.id = ?1`),
		claimsOfAll:     q(`SELECT owner, list FROM {p}claims`),
		ownerName:       q(`SELECT name FROM {p}owners WHERE id = ?1`),
		oldestReady: q(`SELECT event, due FROM {p}deliveries INDEXED BY {p}deliveries_ready
			WHERE handler = ?1 AND lane = ?2 AND state = 0 AND due <= ?3 ORDER BY due, event`),
		oldestParked: q(`SELECT handler, min(due) FROM {p}deliveries NOT INDEXED
			WHERE state = 1 AND due <= ?1 GROUP BY handler`),
	}
}

// item is a delivery as listings read it.
type item struct {
	deliveryKey
	state int
	gen   int64
	store.Delivery
}

const stateCompleted = 4 // a record of the history

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
		return page, ended(ctx, op)
	}
	err := s.read(ctx, op, func(ctx context.Context, x *session) error {
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
	parts    [2][]item
}

func (l *listing) read(ctx context.Context, at cursor) error {
	running, err := l.running(ctx)
	if err != nil {
		return err
	}
	lowest := int64(0)
	if l.f.EventID != "" {
		var seq int64
		var key, handlers string
		found, err := l.row(ctx, l.s.sql.knownEvent, []any{&seq, &key, &handlers}, l.f.EventID)
		if err != nil || !found || seq > at.event {
			return err
		}
		if lowest = seq; seq < at.event {
			at = cursor{event: seq}
		}
	}
	args := append(filterArgs(l.f), at.event, at.handler, l.from, l.to, lowest)
	if l.f.Status == store.StatusRunning {
		if err := l.readRunning(ctx, running, args); err != nil {
			return err
		}
		return l.nameOwners(ctx, running)
	}
	texts := []string{l.s.sql.listDeliveries, l.s.sql.listHistory}
	if l.from >= stateHeld {
		texts[0] = l.s.sql.listBuried
	}
	for i, text := range texts {
		if l.parts[i], err = l.items(ctx, text, running, args); err != nil {
			return err
		}
	}
	return l.nameOwners(ctx, running)
}

// items reads up to a page of one kind.
func (l *listing) items(ctx context.Context, text string, running running, args []any) (list []item, err error) {
	err = l.rows(ctx, text, func(scan func(...any) error) (bool, error) {
		var d item
		if err := d.scan(scan); err != nil {
			return false, err
		}
		owner, runs := running.owner(d.deliveryKey, d.gen)
		if runs && d.Status == store.StatusPending {
			d.Status = store.StatusRunning
			d.Owner = owner
		}
		if l.f.Status == "" || l.f.Status == d.Status {
			list = append(list, d)
		}
		return len(list) < l.limit, nil
	}, args...)
	return list, err
}

// readRunning reads what the claim records list: few of many.
func (l *listing) readRunning(ctx context.Context, running running, args []any) error {
	for d := range running {
		list, err := l.items(ctx, l.s.sql.listOne, running, append(slices.Clone(args), d.event, d.handler))
		if err != nil {
			return err
		}
		l.parts[0] = append(l.parts[0], list...)
	}
	slices.SortFunc(l.parts[0], func(a, b item) int {
		return cmp.Or(cmp.Compare(b.event, a.event), cmp.Compare(a.handler, b.handler))
	})
	l.parts[0] = l.parts[0][:min(len(l.parts[0]), l.limit)]
	return nil
}

// merged returns both parts in the order of the listing.
func (l *listing) merged() []item {
	a, b := l.parts[0], l.parts[1]
	list := make([]item, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].event > b[0].event || (a[0].event == b[0].event && a[0].handler < b[0].handler) {
			list, a = append(list, a[0]), a[1:]
		} else {
			list, b = append(list, b[0]), b[1:]
		}
	}
	return append(append(list, a...), b...)
}

// owner returns who runs a delivery, as the text of the owner's number.
func (r running) owner(d deliveryKey, gen int64) (string, bool) {
	for _, l := range r[d] {
		if l.gen == gen {
			return numberText(l.owner), true
		}
	}
	return "", false
}

// nameOwners puts the names of the owners in the place of their numbers.
func (l *listing) nameOwners(ctx context.Context, r running) error {
	names := make(map[string]string)
	for _, list := range r {
		for _, one := range list {
			key := numberText(one.owner)
			if _, ok := names[key]; ok {
				continue
			}
			var name string
			if _, err := l.row(ctx, l.s.sql.ownerName, []any{&name}, one.owner); err != nil {
				return err
			}
			names[key] = name
		}
	}
	for i := range l.parts {
		for k := range l.parts[i] {
			if d := &l.parts[i][k]; d.Status == store.StatusRunning {
				d.Owner = strings.Clone(names[d.Owner])
			}
		}
	}
	return nil
}

// deadWhere returns the dead deliveries of the oldest events that a filter selects
// and that did not change after now.
func (x *session) deadWhere(ctx context.Context, f store.Filter, limit int, now time.Time) ([]stored, error) {
	highest := stateDead
	if f.HoldsKey {
		highest = stateHeld
	}
	return x.deliveries(ctx, x.s.sql.listDead, limit, append(filterArgs(f), highest, now.UnixMilli())...)
}

// GetEvent returns an event with its deliveries; see [store.Lister].
func (s *Store) GetEvent(ctx context.Context, id string) (store.Event, []store.Delivery, error) {
	const op = "get event"
	var e store.Event
	var list []store.Delivery
	err := s.read(ctx, op, func(ctx context.Context, x *session) error {
		var seq, created int64
		found, err := x.row(ctx, s.sql.getEvent, []any{
			&seq, &e.ID, &e.Type, &e.Source, &e.Key, &created,
			&e.CorrelationID, &e.CausationID, &e.Headers, &e.Payload,
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
		if err := l.read(ctx, cursor{event: seq}); err != nil {
			return err
		}
		for _, d := range l.merged() {
			list = append(list, d.Delivery)
		}
		return nil
	})
	if err != nil {
		return store.Event{}, nil, err
	}
	return e, list, nil
}
