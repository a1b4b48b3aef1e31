package relaybus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus/internal/dispatch"
	"github.com/relaybus-go/relaybus/store"
)

// What operators see and select; see package store for each.
type (
	// Delivery is a delivery as operators see it.
	Delivery = store.Delivery
	// DeliveryID names a delivery.
	DeliveryID = store.DeliveryID
	// DeliveryPage is a page of a listing.
	DeliveryPage = store.DeliveryPage
	// Filter selects deliveries.
	Filter = store.Filter
	// Page selects a part of a listing.
	Page = store.Page
	// Stats counts deliveries.
	Stats = store.Stats
	// Status is the state of a delivery.
	Status = store.Status
	// HandlerEntry is a handler as the catalogue knows it.
	HandlerEntry = store.HandlerEntry
)

// The states of a delivery.
const (
	StatusPending   = store.StatusPending
	StatusRunning   = store.StatusRunning
	StatusDead      = store.StatusDead
	StatusCompleted = store.StatusCompleted
)

// operatorBatch is how many deliveries one transaction of a bulk operation
// changes.
const operatorBatch = 500

// ListDeliveries returns a page of deliveries, those of the newest events
// first. A Limit of 0 stands for 100, and it is 1,000 at most. A cursor that no
// listing returned is [ErrInvalidArgument].
func (b *Bus) ListDeliveries(ctx context.Context, f Filter, p Page) (DeliveryPage, error) {
	if err := b.usable("list deliveries"); err != nil {
		return DeliveryPage{}, err
	}
	orDefault(&p.Limit, 100)
	if p.Limit < 0 || p.Limit > store.MaxPageSize {
		return DeliveryPage{}, invalidArgument("list deliveries", "limit %d: must be from 1 to %d", p.Limit, store.MaxPageSize)
	}
	if err := checkFilter("list deliveries", f); err != nil {
		return DeliveryPage{}, err
	}
	return b.store.List(ctx, f, p)
}

// Event returns an event as it was published, with its deliveries: those that
// are unfinished or dead, and the completed ones where the store keeps history.
// An unknown id is [ErrNotFound].
func (b *Bus) Event(ctx context.Context, id string) (*RawEvent, []Delivery, error) {
	if err := b.usable("get event"); err != nil {
		return nil, nil, err
	}
	event, deliveries, err := b.store.GetEvent(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return EventOf(event), deliveries, nil
}

// Statistics counts deliveries by status and by handler. It reads all of them.
func (b *Bus) Statistics(ctx context.Context) (Stats, error) {
	if err := b.usable("statistics"); err != nil {
		return Stats{}, err
	}
	return b.store.Stats(ctx, b.cfg.Clock.Now())
}

// Requeue makes dead deliveries due now, with all their attempts again. One
// that is not dead is [ErrState], one that does not exist [ErrNotFound]; then
// none is requeued. Requeued deliveries of a key run in their order, and those
// behind them that have not been claimed yet wait for them.
func (b *Bus) Requeue(ctx context.Context, ids ...DeliveryID) error {
	if err := b.usable("requeue"); err != nil {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	if err := b.store.Requeue(ctx, ids, b.cfg.Clock.Now()); err != nil {
		return err
	}
	b.Committed()
	return nil
}

// RequeueWhere requeues all dead deliveries that the filter selects, in
// batches, those of the oldest events first, and returns how many. Those that
// die after it began are left alone. A Status in the filter must be dead.
func (b *Bus) RequeueWhere(ctx context.Context, f Filter) (int, error) {
	if f.Status != "" && f.Status != StatusDead {
		return 0, invalidArgument("requeue", "status %q: only dead deliveries can be requeued", f.Status)
	}
	if err := checkFilter("requeue", f); err != nil {
		return 0, err
	}
	began := b.cfg.Clock.Now()
	n, err := b.inBatches(ctx, "requeue", func() (int, error) {
		return b.store.RequeueWhere(ctx, f, operatorBatch, began)
	})
	if n > 0 {
		b.Committed()
	}
	return n, err
}

// inBatches repeats a bulk operation until a batch is not full. What fails
// again at once could go on for ever, so each batch moves on or ends it.
func (b *Bus) inBatches(ctx context.Context, op string, batch func() (int, error)) (int, error) {
	if err := b.usable(op); err != nil {
		return 0, err
	}
	total := 0
	for {
		n, err := batch()
		total += n
		if err != nil {
			return total, err
		}
		if n < operatorBatch {
			return total, nil
		}
		if err := ctx.Err(); err != nil {
			return total, fmt.Errorf("%s: stopped after %d: %w", op, total, err)
		}
	}
}

// Bury makes a pending delivery dead. It does not hold its key. One that runs
// is [ErrRunning], one that is not pending [ErrState].
func (b *Bus) Bury(ctx context.Context, id DeliveryID, reason string) error {
	if err := b.usable("bury"); err != nil {
		return err
	}
	if err := b.store.BuryPending(ctx, id, errorText(reason), b.cfg.Clock.Now()); err != nil {
		return err
	}
	b.Committed()
	return nil
}

// Reschedule changes when a pending delivery is due. One that runs is
// [ErrRunning], one that is not pending [ErrState].
func (b *Bus) Reschedule(ctx context.Context, id DeliveryID, dueAt time.Time) error {
	if err := b.usable("reschedule"); err != nil {
		return err
	}
	now := b.cfg.Clock.Now()
	if dueAt.IsZero() || dueAt.After(now.Add(maxDelay)) {
		return invalidArgument("reschedule", "due time: must be set, and at most 10 years ahead")
	}
	if err := b.store.ReschedulePending(ctx, id, stamp(dueAt), now); err != nil {
		return err
	}
	b.Committed()
	return nil
}

// Skip lets the deliveries pass that wait behind a dead one which holds its key
// (see [HoldKey]). It stays dead. One that holds no key is [ErrState].
func (b *Bus) Skip(ctx context.Context, id DeliveryID) error {
	if err := b.usable("skip"); err != nil {
		return err
	}
	if err := b.store.Skip(ctx, id, b.cfg.Clock.Now()); err != nil {
		return err
	}
	b.Committed()
	return nil
}

// Cancel takes back an event that nobody has claimed yet: all its deliveries
// are removed, and publishing its id again adds nothing for the handlers that it
// was taken back from. It is [ErrRunning] or
// [ErrState] when one of them has been claimed.
func (b *Bus) Cancel(ctx context.Context, eventID string) error {
	if err := b.usable("cancel"); err != nil {
		return err
	}
	if err := b.store.CancelEvent(ctx, eventID, b.cfg.Clock.Now()); err != nil {
		return err
	}
	b.Committed()
	return nil
}

// Pause keeps all processes from claiming deliveries of a handler, until
// [Bus.Resume]. What runs goes on, and what other processes have claimed already
// still starts there. It survives restarts.
func (b *Bus) Pause(ctx context.Context, handler string) error {
	if err := b.usable("pause"); err != nil {
		return err
	}
	if err := b.store.PauseHandler(ctx, handler, true, b.cfg.Clock.Now()); err != nil {
		return err
	}
	if e := b.currentEngine(); e != nil {
		e.Shed(handler)
	}
	return nil
}

// Resume ends a pause.
func (b *Bus) Resume(ctx context.Context, handler string) error {
	if err := b.usable("resume"); err != nil {
		return err
	}
	if err := b.store.PauseHandler(ctx, handler, false, b.cfg.Clock.Now()); err != nil {
		return err
	}
	b.Committed()
	return nil
}

// Retire takes a handler out of the catalogue: publishers create no further
// deliveries for it. What it still has stays: run it with [DrainOnly], or drop
// it with [Bus.Drop]. A process that starts with the handler records it again.
func (b *Bus) Retire(ctx context.Context, handler string) error {
	if err := b.usable("retire"); err != nil {
		return err
	}
	if err := b.store.RetireHandler(ctx, handler, b.cfg.Clock.Now()); err != nil {
		return err
	}
	return b.loadCatalog(ctx)
}

// Drop deletes the pending deliveries of a handler that do not run, and returns
// how many. Their events count as handled.
func (b *Bus) Drop(ctx context.Context, handler string) (int, error) {
	n, err := b.inBatches(ctx, "drop", func() (int, error) {
		return b.store.DropPending(ctx, handler, operatorBatch, b.cfg.Clock.Now())
	})
	if n > 0 {
		b.Committed()
	}
	return n, err
}

// Catalog returns the handlers that the store knows.
func (b *Bus) Catalog(ctx context.Context) ([]HandlerEntry, error) {
	if err := b.usable("catalog"); err != nil {
		return nil, err
	}
	return b.store.Handlers(ctx)
}

// Orphans returns the handlers that have unfinished deliveries and that neither
// this process nor any other one has that was alive in the last 5 minutes. They
// are also reported, to the log and the hooks, at start and while the bus runs.
func (b *Bus) Orphans(ctx context.Context) ([]Orphaned, error) {
	if err := b.usable("orphans"); err != nil {
		return nil, err
	}
	if err := b.loadCatalog(ctx); err != nil {
		return nil, err
	}
	since := b.cfg.Clock.Now().Add(-goneAfter)
	if !b.catalog.hasStrangers(since) {
		return nil, nil // so that a start need not count a large backlog
	}
	stats, err := b.store.Stats(ctx, b.cfg.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("look for orphaned deliveries: %w", err)
	}
	var list []Orphaned
	for _, h := range stats.Handlers {
		if n := h.Pending + h.Running; n > 0 && !b.catalog.knows(h.Handler, since) {
			list = append(list, Orphaned{Handler: h.Handler, Deliveries: n})
		}
	}
	return list, nil
}

// reportOrphans tells the log and the hooks of orphans, once each.
func (b *Bus) reportOrphans(ctx context.Context) error {
	list, err := b.Orphans(ctx)
	if err != nil {
		return err
	}
	for _, o := range list {
		if !b.reported.first(o.Handler) {
			continue
		}
		b.cfg.Logger.WarnContext(ctx, "relaybus: deliveries wait for a handler that nobody has",
			"handler", o.Handler, "deliveries", o.Deliveries)
		each(&b.hooks, func(h HookOrphaned) { h.OnOrphaned(o) })
	}
	return nil
}

// Ready is nil while the bus is started, its transports are ready, and its
// claims succeed. Otherwise it says why not.
func (b *Bus) Ready() error {
	b.mu.Lock()
	state := b.state
	e := b.engine
	b.mu.Unlock()
	switch state {
	case stateRunning:
	case stateStopping, stateStopped:
		return ErrStopped
	default:
		return ErrNotStarted
	}
	errs := []error{b.life.links.ready()}
	if e != nil {
		errs = append(errs, e.LastError())
	}
	return errors.Join(errs...)
}

func checkFilter(op string, f Filter) error {
	switch f.Status {
	case "", StatusPending, StatusRunning, StatusDead, StatusCompleted:
	default:
		return invalidArgument(op, "unknown status")
	}
	if !f.From.IsZero() && !f.To.IsZero() && f.To.Before(f.From) {
		return invalidArgument(op, "the time range ends before it begins")
	}
	return nil
}

func invalidArgument(op, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", op, ErrInvalidArgument, fmt.Sprintf(format, args...))
}

// errorText makes a text fit to be stored as a delivery's error.
func errorText(text string) string { return dispatch.Text(errors.New(text)) }
