package memstore

import (
	"context"
	"encoding/base64"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/relaybus-go/relaybus/store"
)

// List returns a page of deliveries, the last committed event first; see
// [store.Lister].
func (s *Store) List(ctx context.Context, f store.Filter, p store.Page) (store.DeliveryPage, error) {
	const op = "list deliveries"
	if err := alive(ctx, op); err != nil {
		return store.DeliveryPage{}, err
	}
	if p.Limit < 1 || p.Limit > store.MaxPageSize {
		return store.DeliveryPage{}, store.NewError(op, store.ErrInvalidArgument,
			"the limit must be from 1 to "+strconv.Itoa(store.MaxPageSize), nil)
	}
	switch f.Status {
	case "", store.StatusPending, store.StatusRunning, store.StatusDead, store.StatusCompleted:
	default:
		return store.DeliveryPage{}, store.NewError(op, store.ErrInvalidArgument, "unknown status", nil)
	}
	after, err := parsePlace(p.Cursor)
	if err != nil {
		return store.DeliveryPage{}, store.NewError(op, store.ErrInvalidArgument, "malformed cursor", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	var page store.DeliveryPage
	var last place
	for e := range s.db.behind(f, after) {
		for _, row := range s.db.rows(e) {
			at := place{e.position, row.ID.Handler}
			if !after.before(at) || !s.db.selects(f, e, row) {
				continue
			}
			if len(page.Deliveries) == p.Limit {
				page.Next = last.String()
				return page, nil
			}
			page.Deliveries = append(page.Deliveries, row)
			last = at
		}
	}
	return page, nil
}

// GetEvent returns an event with its deliveries, in the order of handler ids;
// see [store.Lister].
func (s *Store) GetEvent(ctx context.Context, id string) (store.Event, []store.Delivery, error) {
	const op = "get event"
	if err := alive(ctx, op); err != nil {
		return store.Event{}, nil, err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	e := s.db.events[id]
	if e == nil {
		return store.Event{}, nil, store.NewError(op, store.ErrNotFound, "", nil)
	}
	data := e.data
	data.Payload, data.Headers = slices.Clone(data.Payload), slices.Clone(data.Headers)
	return data, s.db.rows(e), nil
}

// place is where a page ends: a delivery in the order of listings.
type place struct {
	position int64
	handler  string
}

// before says that other comes behind p. The zero place is before everything.
func (p place) before(other place) bool {
	if p.position == 0 || other.position < p.position {
		return true
	}
	return other.position == p.position && other.handler > p.handler
}

func (p place) String() string {
	return strconv.FormatInt(p.position, 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(p.handler))
}

func parsePlace(text string) (place, error) {
	if text == "" {
		return place{}, nil
	}
	position, handler, _ := strings.Cut(text, ".")
	number, err := strconv.ParseInt(position, 10, 64)
	if err != nil {
		return place{}, err
	}
	id, err := base64.RawURLEncoding.DecodeString(handler)
	if err != nil {
		return place{}, err
	}
	p := place{number, string(id)}
	if number < 1 || p.String() != text {
		return place{}, strconv.ErrSyntax
	}
	return p, nil
}

// behind yields the events that a listing has behind a place.
func (db *database) behind(f store.Filter, after place) iter.Seq[*event] {
	return func(yield func(*event) bool) {
		if f.EventID != "" {
			if e := db.events[f.EventID]; e != nil {
				yield(e)
			}
			return
		}
		for e := range db.log.backward() {
			if (after.position == 0 || e.position <= after.position) && !yield(e) {
				return
			}
		}
	}
}

// selected yields the events that a filter may select, the oldest first.
func (db *database) selected(f store.Filter) iter.Seq[*event] {
	if f.EventID != "" {
		return db.behind(f, place{})
	}
	return db.log.all()
}

// rows returns the deliveries of an event as operators see them.
func (db *database) rows(e *event) []store.Delivery {
	rows := make([]store.Delivery, 0, len(e.deliveries)+len(e.history))
	summary := e.data
	summary.Payload, summary.Headers = nil, nil
	for _, d := range e.deliveries {
		row := db.row(d)
		row.Event = summary
		rows = append(rows, row)
	}
	for _, c := range e.history {
		rows = append(rows, store.Delivery{
			ID:        store.DeliveryID{EventID: e.data.ID, Handler: c.handler},
			Status:    store.StatusCompleted,
			Event:     summary,
			Attempts:  c.attempts,
			Lost:      c.lost,
			Error:     c.failure,
			DueAt:     instant(c.due),
			UpdatedAt: instant(c.at),
		})
	}
	slices.SortFunc(rows, func(a, b store.Delivery) int { return strings.Compare(a.ID.Handler, b.ID.Handler) })
	return rows
}

// row returns a delivery without its event.
func (db *database) row(d *delivery) store.Delivery {
	row := store.Delivery{
		ID:        d.id(),
		Status:    db.status(d),
		Attempts:  d.attempts,
		Lost:      d.lost,
		DueAt:     instant(d.due),
		UpdatedAt: instant(d.updated),
		Error:     d.failure,
		HoldsKey:  d.hold,
	}
	if o := db.running[d]; o != nil {
		row.Owner = o.name
	}
	return row
}

func (db *database) status(d *delivery) store.Status {
	switch {
	case d.state == dead:
		return store.StatusDead
	case db.running[d] != nil:
		return store.StatusRunning
	default:
		return store.StatusPending
	}
}

// selects says that the filter selects the row.
func (*database) selects(f store.Filter, e *event, row store.Delivery) bool {
	return (f.Status == "" || f.Status == row.Status) &&
		(f.Handler == "" || f.Handler == row.ID.Handler) &&
		(f.EventType == "" || f.EventType == e.data.Type) &&
		(f.EventID == "" || f.EventID == e.data.ID) &&
		(f.Key == "" || f.Key == e.data.Key) &&
		(!f.HoldsKey || row.HoldsKey) &&
		(f.From.IsZero() || e.created >= millis(f.From)) &&
		(f.To.IsZero() || e.created < millis(f.To))
}
