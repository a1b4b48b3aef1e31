package relaybus

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/relaybus-go/relaybus/internal/dispatch"
	"github.com/relaybus-go/relaybus/store"
)

// Bus is an event bus over one store. It is safe for concurrent use.
type Bus struct {
	store    store.Store
	features store.Features
	cfg      Config
	hooks    hooks
	// ownIDs says that ids of events are made here, so that none is made twice.
	ownIDs  bool
	catalog *catalog
	types   *typeRegistry

	mu       sync.Mutex
	state    state
	handlers []*Handler // routes included, in the order in which they came
	byID     map[string]*Handler
	engine   *dispatch.Engine
	prepared bool
	life     lifecycle

	// warned remembers for which event types it was logged that nobody
	// handles them.
	warned onceEach
	// reported remembers of which handlers it was told that nobody has them.
	reported onceEach
}

// New returns a bus over a store, which it never closes. Everything that is
// wrong with the configuration, its routes and its subscriptions is reported at
// once, as one error that matches [ErrConfiguration]. Nothing is started and
// the database is not touched.
func New(s store.Store, cfg Config) (*Bus, error) {
	if s == nil || isNilPointer(s) {
		return nil, configError("store is nil")
	}
	ownIDs := cfg.GenerateID == nil
	cfg = cfg.withDefaults()
	features := s.Features()
	if err := cfg.validate(features); err != nil {
		return nil, err
	}
	b := &Bus{
		store:    s,
		features: features,
		cfg:      cfg,
		ownIDs:   ownIDs,
		byID:     make(map[string]*Handler),
		types:    newTypeRegistry(cfg.EventTypes),
	}
	b.hooks = hooks{all: cfg.Hooks, panic: func(value any) {
		cfg.Logger.Error("relaybus: a hook panicked", "panic", fmt.Sprintf("%T", value))
	}}
	b.catalog = newCatalog(cfg.NoCatalog)
	b.life.init()
	routes, err := b.routeHandlers()
	if err := errors.Join(err, b.checkSubscriptions()); err != nil {
		return nil, err
	}
	if err := b.subscribe(routes); err != nil {
		return nil, err
	}
	return b, nil
}

// isNilPointer reports whether an interface holds a pointer that is nil.
func isNilPointer(value any) bool {
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Subscribe registers handlers. It reports everything that is wrong with all of
// them at once, as one error that matches [ErrConfiguration], and then
// registers none. After Start it is [ErrAlreadyStarted].
func (b *Bus) Subscribe(handlers ...Handler) error {
	return b.subscribe(handlers)
}

func (b *Bus) subscribe(handlers []Handler) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case stateNew:
	case stateStopping, stateStopped:
		return fmt.Errorf("subscribe: %w", ErrStopped)
	default:
		return fmt.Errorf("subscribe: %w", ErrAlreadyStarted)
	}
	handlers = slices.Clone(handlers) // they are changed below, and the caller may use them for another bus
	seen := make(map[string]*Handler, len(handlers))
	var errs []error
	for i := range handlers {
		h := &handlers[i]
		errs = append(errs, b.checkHandler(h))
		for _, id := range append([]string{h.id}, h.aliases...) {
			first := b.byID[id]
			if first == nil {
				first = seen[id]
			}
			if first != nil {
				errs = append(errs, &DuplicateHandlerError{ID: id, First: first.origin, Second: h.origin})
			}
			seen[id] = h
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	for i := range handlers {
		h := handlers[i]
		for _, t := range h.types {
			b.types.bind(t, h.goType)
		}
		b.handlers = append(b.handlers, &h)
		for _, id := range append([]string{h.id}, h.aliases...) {
			b.byID[id] = &h
		}
	}
	b.catalog.setOwn(b.handlers)
	b.engine, b.prepared = nil, false
	return nil
}

// checkHandler says what is wrong with one handler.
func (b *Bus) checkHandler(h *Handler) error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, configError("handler %q (%s): %w", h.id, h.origin, fmt.Errorf(format, args...)))
	}
	if reason := checkText(h.id, maxName); reason != "" {
		fail("id %s", reason)
	}
	for _, alias := range h.aliases {
		if reason := checkText(alias, maxName); reason != "" {
			fail("alias %s", reason)
		}
	}
	if h.run == nil {
		fail("function is nil")
	} else if err := b.wrap(h); err != nil {
		fail("%w", err)
	}
	if len(h.types) == 0 {
		fail("takes no event type")
	}
	for _, t := range h.types {
		if reason := checkPattern(t); reason != "" {
			fail("event type %s", reason)
		} else if err := b.types.check(t, h.goType); err != nil {
			fail("%w", err)
		}
	}
	if h.set.concurrency && (h.concurrency < 1 || h.concurrency > b.cfg.Concurrency) {
		fail("Concurrency %d: must be from 1 to the bus's %d", h.concurrency, b.cfg.Concurrency)
	}
	if h.set.rate && (h.rateEvents < 1 || h.ratePer <= 0) {
		fail("Rate %d per %v: must be positive", h.rateEvents, h.ratePer)
	}
	if h.set.timeout && (h.timeout <= 0 || h.timeout > maxDelay) {
		fail("Timeout %v: must be positive and at most 10 years", h.timeout)
	}
	if h.transactional && b.handlerTimeout(h) >= b.cfg.LeaseDuration {
		fail("Timeout %v: a transactional handler must end before its lease of %v does",
			b.handlerTimeout(h), b.cfg.LeaseDuration)
	}
	if h.retry != nil {
		if err := h.retry.validate("Retry"); err != nil {
			fail("%w", err)
		}
	}
	return errors.Join(errs...)
}

// HandlerInfo describes a registered handler.
type HandlerInfo struct {
	ID            string
	Aliases       []string
	Types         []string
	Concurrency   int
	Transactional bool
	HoldKey       bool
	// Origin is where in the code it was made, as file:line.
	Origin string
}

// Handlers returns the handlers of this process in the order in which they were
// subscribed, routes included.
func (b *Bus) Handlers() []HandlerInfo {
	b.mu.Lock()
	defer b.mu.Unlock()
	infos := make([]HandlerInfo, 0, len(b.handlers))
	for _, h := range b.handlers {
		infos = append(infos, HandlerInfo{
			ID: h.id, Aliases: append([]string(nil), h.aliases...), Types: append([]string(nil), h.types...),
			Concurrency: b.concurrency(h), Transactional: h.transactional, HoldKey: h.holdKey, Origin: h.origin,
		})
	}
	return infos
}

// onceEach remembers texts, so that each is told once. What comes after the
// first maxTexts is not told at all.
type onceEach struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

const maxTexts = 1000

func (o *onceEach) first(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, seen := o.seen[text]; seen || len(o.seen) >= maxTexts {
		return false
	}
	if o.seen == nil {
		o.seen = make(map[string]struct{})
	}
	o.seen[text] = struct{}{}
	return true
}

// typeRegistry knows which Go type stands behind a name.
type typeRegistry struct {
	mu     sync.Mutex
	types  map[string]reflect.Type
	strict map[string]bool
}

func newTypeRegistry(known []AnyEventType) *typeRegistry {
	r := &typeRegistry{types: make(map[string]reflect.Type)}
	for _, t := range known {
		if r.strict == nil {
			r.strict = make(map[string]bool)
		}
		r.strict[t.Name()] = true
		if t.payloadType() != nil {
			r.types[t.Name()] = t.payloadType()
		}
	}
	return r
}

// check refuses an unknown name, and a second Go type for one name. A nil type
// (raw JSON) fits any.
func (r *typeRegistry) check(name string, t reflect.Type) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.strict != nil && !r.known(name) {
		return fmt.Errorf("%w: %s", ErrUnknownEventType, name)
	}
	if t == nil {
		return nil
	}
	if old, ok := r.types[name]; ok && old != t {
		return fmt.Errorf("event type %s is defined with two Go types, %v and %v", name, old, t)
	}
	return nil
}

// bind remembers the Go type of a name that was accepted.
func (r *typeRegistry) bind(name string, t reflect.Type) {
	if t == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.types) < maxTexts {
		r.types[name] = t
	}
}

// known reports whether a name, or some name that a pattern takes, is known.
func (r *typeRegistry) known(pattern string) bool {
	if r.strict[pattern] {
		return true
	}
	for name := range r.strict {
		if matches(pattern, name) {
			return true
		}
	}
	return false
}
