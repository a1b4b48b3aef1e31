package relaybus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/internal/dispatch"
	"github.com/relaybus-go/relaybus/internal/service"
	"github.com/relaybus-go/relaybus/store"
)

// state is where a bus is in its life. It only moves forward.
type state uint8

const (
	stateNew state = iota
	stateStarting
	stateRunning
	stateStopping
	stateStopped
)

// lifecycle is what Start makes and Stop takes down.
type lifecycle struct {
	cancelStart context.CancelCauseFunc
	// started is closed when Start has returned, stopped when Stop's work is done.
	started, stopped chan struct{}
	stopErr          error
	// catalogKick says that another process may have changed the catalogue.
	catalogKick chan struct{}
	services    []*service.Service
	links       links
}

func (l *lifecycle) init() {
	l.started, l.stopped = make(chan struct{}), make(chan struct{})
	l.catalogKick = make(chan struct{}, 1)
}

// usable is ErrStopped for a bus that has been stopped.
func (b *Bus) usable(op string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == stateStopped {
		return fmt.Errorf("%s: %w", op, ErrStopped)
	}
	return nil
}

// Start sets the store up, records the handlers, connects the transports, and
// starts to claim and to receive. The context bounds the start alone. A second
// call is [ErrAlreadyStarted]. When it fails, everything is taken down again,
// the bus is stopped for good, and the error says why.
func (b *Bus) Start(ctx context.Context) error {
	b.mu.Lock()
	switch b.state {
	case stateNew:
	case stateStopping, stateStopped:
		b.mu.Unlock()
		return fmt.Errorf("start: %w", ErrStopped)
	default:
		b.mu.Unlock()
		return fmt.Errorf("start: %w", ErrAlreadyStarted)
	}
	b.state = stateStarting
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b.life.cancelStart = cancel
	b.mu.Unlock()

	err := b.start(ctx)
	if err == nil {
		err = context.Cause(ctx) // a Stop that came meanwhile wins
	}
	if err == nil {
		b.mu.Lock()
		if b.state == stateStarting {
			b.state = stateRunning
		}
		b.mu.Unlock()
		close(b.life.started)
		return nil
	}
	err = fmt.Errorf("start: %w", err)
	downErr := b.takeDown(context.WithoutCancel(ctx), 0)
	if downErr != nil {
		err = errors.Join(err, downErr)
		downErr = fmt.Errorf("stop: %w", downErr)
	}
	b.mu.Lock()
	b.state = stateStopped
	b.life.stopErr = downErr // why it did not start, Start has said
	b.mu.Unlock()
	close(b.life.started)
	close(b.life.stopped)
	return err
}

func (b *Bus) start(ctx context.Context) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := b.reportOrphans(ctx); err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	own := context.WithoutCancel(ctx)
	if !b.cfg.PublishOnly {
		b.mu.Lock()
		e := b.engineLocked()
		b.mu.Unlock()
		e.Start(own, b.listener())
	}
	if !b.cfg.NoCatalog {
		b.life.services = append(b.life.services, service.Start(own, b.catalogLoop))
	}
	if b.cfg.Retention.Interval != Never {
		b.life.services = append(b.life.services, service.Start(own, b.retentionLoop))
	}
	return b.receive(ctx)
}

// listener returns the store's wake-up signal, if it has one.
func (b *Bus) listener() func(context.Context, func()) error {
	w, ok := b.store.(store.Waker)
	if !ok {
		return nil
	}
	return func(ctx context.Context, signal func()) error {
		return w.Wake(ctx, func() {
			select {
			case b.life.catalogKick <- struct{}{}:
			default:
			}
			signal()
		})
	}
}

// prepare sets the store up and exchanges the catalogue, once.
func (b *Bus) prepare(ctx context.Context) error {
	b.mu.Lock()
	done := b.prepared
	b.mu.Unlock()
	if done {
		return nil
	}
	if !b.cfg.SkipSetup {
		if err := b.store.Setup(ctx); err != nil {
			return fmt.Errorf("set up store: %w", err)
		}
	}
	if err := b.checkClock(ctx); err != nil {
		return err
	}
	if !b.cfg.NoCatalog {
		if err := b.loadCatalog(ctx); err != nil {
			return err
		}
		if err := b.recordHandlers(ctx, true); err != nil {
			return err
		}
		if err := b.retireDrained(ctx); err != nil {
			return err
		}
		if err := b.loadCatalog(ctx); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.prepared = true
	b.mu.Unlock()
	return nil
}

// checkClock compares the clock with that of the database's server, if it has one.
// A clock that was put in place of the system's is left alone: it is not meant to
// be anybody else's.
func (b *Bus) checkClock(ctx context.Context) error {
	server, ok := b.store.(store.Timekeeper)
	if own, system := b.cfg.Clock.(stampClock); !ok || !system || own.Clock != (SystemClock{}) {
		return nil
	}
	before := b.cfg.Clock.Now()
	theirs, err := server.ServerTime(ctx)
	if err != nil {
		return fmt.Errorf("compare clocks: %w", err)
	}
	after := b.cfg.Clock.Now()
	// How long the question took is no difference.
	off := max(before.Sub(theirs), theirs.Sub(after), 0)
	if limit := b.cfg.LeaseDuration / 3; off > limit {
		return fmt.Errorf("compare clocks: %w: %v from the database server's, a lease of %v allows %v", ErrClockSkew, off, b.cfg.LeaseDuration, limit)
	}
	return nil
}

// recordHandlers writes what this process runs into the catalogue, and that it
// is alive. A start revives what was retired.
func (b *Bus) recordHandlers(ctx context.Context, start bool) error {
	entries := b.catalog.entries(start)
	if len(entries) == 0 {
		return nil
	}
	if err := b.store.RecordHandlers(ctx, entries, b.cfg.Clock.Now()); err != nil {
		return fmt.Errorf("record handlers: %w", err)
	}
	return nil
}

// retireDrained retires the handlers that are only to be drained.
func (b *Bus) retireDrained(ctx context.Context) error {
	b.mu.Lock()
	handlers := b.handlers
	b.mu.Unlock()
	for _, h := range handlers {
		if !h.drainOnly {
			continue
		}
		err := b.store.RetireHandler(ctx, h.id, b.cfg.Clock.Now())
		if err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("retire handler %s: %w", h.id, err)
		}
	}
	return nil
}

// loadCatalog reads the catalogue again.
func (b *Bus) loadCatalog(ctx context.Context) error {
	entries, err := b.store.Handlers(ctx)
	if err != nil {
		return fmt.Errorf("read handler catalogue: %w", err)
	}
	b.catalog.setRemote(entries, b.cfg.Clock.Now())
	b.mu.Lock()
	e, handlers := b.engine, b.handlers
	b.mu.Unlock()
	if e != nil {
		for _, h := range handlers {
			e.SetAliases(h.id, b.catalog.aliasesOf(h))
		}
	}
	return nil
}

// ensureCatalog reads the catalogue for a publish of a bus that was not started,
// so that nothing else does, or whose start has not come that far. Without
// having read it once there is an error, as the event would miss the handlers
// of other processes for good; later a failure leaves what is known.
func (b *Bus) ensureCatalog(ctx context.Context) error {
	if b.cfg.NoCatalog || scopeOf(ctx, b) != nil {
		return nil
	}
	b.mu.Lock()
	idle := b.state == stateNew
	b.mu.Unlock()
	loaded := b.catalog.loadedAt()
	age := b.cfg.Clock.Now().Sub(loaded)
	fresh := age >= 0 && age < b.cfg.CatalogInterval // below 0 the clock was set back
	if !loaded.IsZero() && (!idle || fresh) {
		return nil
	}
	err := b.loadCatalog(ctx)
	switch {
	case err == nil, errors.Is(err, ErrNotSetUp): // there are no handlers, or the publish says so itself
		return nil
	case loaded.IsZero():
		return err
	default:
		b.cfg.Logger.WarnContext(ctx, "relaybus: the handler catalogue could not be read", "error", err)
		return nil
	}
}

// catalogLoop reads the catalogue again at each interval and after a wake-up,
// mends what another version of a handler has replaced, and says now and then
// that this process is alive.
func (b *Bus) catalogLoop(ctx context.Context) {
	failing := false
	var alive time.Duration
	for b.nextCatalog(ctx) {
		alive += b.cfg.CatalogInterval
		err := b.tendCatalog(ctx, alive >= aliveEvery)
		if alive >= aliveEvery {
			alive = 0
		}
		if err != nil && ctx.Err() == nil && !failing {
			b.cfg.Logger.WarnContext(ctx, "relaybus: the handler catalogue could not be read or mended", "error", err)
		}
		failing = err != nil
	}
}

const (
	// aliveEvery is how often a process says that its handlers are there.
	aliveEvery = time.Minute
	// goneAfter is when a handler of which nothing was heard counts as gone.
	goneAfter = 5 * time.Minute
	// wakeSpacing keeps the commits of other processes from making this one read
	// the catalogue without end.
	wakeSpacing = 50 * time.Millisecond
)

// nextCatalog waits for the next reading of the catalogue.
func (b *Bus) nextCatalog(ctx context.Context) bool {
	if !b.sleep(ctx, min(wakeSpacing, b.cfg.CatalogInterval)) {
		return false
	}
	rest := b.cfg.CatalogInterval - wakeSpacing
	if rest <= 0 {
		return true
	}
	return b.sleepUntil(ctx, rest, b.life.catalogKick)
}

// tendCatalog reads the catalogue, and writes to it if it must.
func (b *Bus) tendCatalog(ctx context.Context, alive bool) error {
	ctx, cancel := b.within(ctx, b.cfg.LeaseDuration) // so that a store which does not answer can't hang it
	defer cancel()
	if err := b.loadCatalog(ctx); err != nil {
		return err
	}
	if !alive && !b.catalog.incomplete() {
		return nil
	}
	if err := b.recordHandlers(ctx, false); err != nil {
		return err
	}
	if err := b.loadCatalog(ctx); err != nil || !alive {
		return err
	}
	return b.reportOrphans(ctx)
}

// sleep waits on the bus's clock, and reports false when the context has ended.
func (b *Bus) sleep(ctx context.Context, d time.Duration) bool { return b.sleepUntil(ctx, d, nil) }

// sleepUntil is sleep that a kick ends early.
func (b *Bus) sleepUntil(ctx context.Context, d time.Duration, kick <-chan struct{}) bool {
	timer := make(chan struct{})
	stop := b.cfg.Clock.AfterFunc(d, func() { close(timer) })
	defer stop()
	select {
	case <-timer:
	case <-kick:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Stop ends the bus for good: it stops receiving and claiming, waits for running
// handlers up to Config.ShutdownTimeout, cancels those that are left, gives
// everything back without charging an attempt, and closes the transports. It
// never closes the store. It returns when the context ends, if that is earlier.
//
// The error says what was left behind, such as handlers that ignore their
// context. Before Start it is [ErrNotStarted], and nothing changes. Further
// calls wait for the first one and return what it returns.
func (b *Bus) Stop(ctx context.Context) error {
	b.mu.Lock()
	switch b.state {
	case stateNew:
		b.mu.Unlock()
		return fmt.Errorf("stop: %w", ErrNotStarted)
	case stateStarting:
		b.life.cancelStart(ErrStopped)
		b.mu.Unlock()
		select {
		case <-b.life.started:
		case <-ctx.Done():
			return fmt.Errorf("stop: the start has not ended yet: %w", context.Cause(ctx))
		}
		b.mu.Lock()
	default:
	}
	if b.state != stateRunning {
		b.mu.Unlock()
		select {
		case <-b.life.stopped:
			return b.life.stopErr
		case <-ctx.Done():
			return fmt.Errorf("stop: another stop is under way: %w", context.Cause(ctx))
		}
	}
	b.state = stateStopping
	b.mu.Unlock()

	err := b.takeDown(ctx, b.cfg.ShutdownTimeout)
	if err != nil {
		err = fmt.Errorf("stop: %w", err)
	}
	b.mu.Lock()
	b.state = stateStopped
	b.life.stopErr = err
	b.mu.Unlock()
	close(b.life.stopped)
	return err
}

// takeDown stops what was started, in the reverse order.
func (b *Bus) takeDown(ctx context.Context, grace time.Duration) error {
	b.mu.Lock()
	e := b.engine
	b.mu.Unlock()
	var errs []error
	began := b.cfg.Clock.Now()
	// A context that has ended before leaves a moment for what returns at once.
	ended := ctx.Err() != nil
	for _, s := range b.life.services {
		s.Cancel()
	}
	receiveCtx, cancelReceive := share(ctx, 2)
	receiveCtx, cancel := b.within(receiveCtx, grace)
	errs = append(errs, b.stopReceiving(receiveCtx))
	cancel()
	cancelReceive()
	if e != nil {
		engineCtx, cancel := ctx, func() {}
		if len(b.cfg.Transports) > 0 {
			engineCtx, cancel = share(ctx, 10)
		}
		errs = append(errs, e.Stop(engineCtx, max(grace-b.cfg.Clock.Now().Sub(began), 0)))
		cancel()
	}
	if ended {
		ctx = context.WithoutCancel(ctx)
	}
	closeCtx, cancel := b.within(ctx, 0)
	defer cancel()
	errs = append(errs, b.disconnect(closeCtx))
	for _, s := range slices.Backward(b.life.services) {
		if err := s.Join(closeCtx); err != nil {
			errs = append(errs, fmt.Errorf("stop catalogue or retention: %w", err))
		}
	}
	return errors.Join(errs...)
}

// share returns a context that leaves one part in parts of the time until the
// deadline of ctx to what comes after it.
func share(ctx context.Context, parts time.Duration) (context.Context, func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/parts))
}

// within returns a context that ends a cancel grace after d, on the bus's clock.
func (b *Bus) within(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := b.cfg.Clock.AfterFunc(d+b.cfg.CancelGrace, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Run starts the bus, waits until the context ends, and stops it with its own
// grace. It returns nil after a clean stop, and otherwise what Start or Stop
// returned.
func (b *Bus) Run(ctx context.Context) error {
	if err := b.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-b.life.stopped:
		return b.life.stopErr // somebody else has stopped it
	}
	return b.Stop(context.WithoutCancel(ctx))
}

// RunOnce claims one batch of due deliveries, runs it, and returns how many
// deliveries it was. It works with and without Start, for tests and scripts.
func (b *Bus) RunOnce(ctx context.Context) (int, error) {
	e, err := b.readyEngine(ctx)
	if err != nil {
		return 0, fmt.Errorf("run once: %w", err)
	}
	return e.RunOnce(ctx)
}

// Drain runs deliveries until none is due, those included that handlers cause
// meanwhile, and returns how many it ran. When the context ends before that,
// the error says so.
func (b *Bus) Drain(ctx context.Context) (int, error) {
	e, err := b.readyEngine(ctx)
	if err != nil {
		return 0, fmt.Errorf("drain: %w", err)
	}
	return e.Drain(ctx)
}

func (b *Bus) readyEngine(ctx context.Context) (*dispatch.Engine, error) {
	if handling(ctx) != nil {
		return nil, fmt.Errorf("%w: a handler would wait for itself", ErrInvalidArgument)
	}
	if err := b.usable("dispatch"); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.engineLocked(), nil
}

// currentEngine is the engine, if there is one.
func (b *Bus) currentEngine() *dispatch.Engine {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.engine
}
