package relaybus

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"
)

// HandlerFunc handles an event whose payload is still JSON. Middleware wraps
// it.
type HandlerFunc func(ctx context.Context, e *RawEvent) error

// Middleware wraps handlers. The first one given is the outermost.
type Middleware func(next HandlerFunc) HandlerFunc

// Handler is a handler that is ready to be subscribed: see [EventType.Handle]
// and [Handle].
type Handler struct {
	id     string
	types  []string
	goType reflect.Type
	run    HandlerFunc
	// wrapped is run with the middleware of the bus around it.
	wrapped HandlerFunc
	// origin is where it was made, for errors.
	origin string

	aliases       []string
	concurrency   int
	timeout       time.Duration
	retry         *RetryPolicy
	transactional bool
	holdKey       bool
	drainOnly     bool
	rateEvents    int
	ratePer       time.Duration
	set           handlerSet
}

type handlerSet struct{ concurrency, timeout, rate bool }

// ID returns the handler's id.
func (h Handler) ID() string { return h.id }

// Invoke calls the handler's function once, outside of any bus, for tests and
// runners of your own: without middleware, timeout, retries and transaction,
// and a panic passes through. The context carries the event, so that what is
// published with it takes over correlation and causation. An event of a type
// that the handler does not take is [ErrInvalidArgument].
func (h Handler) Invoke(ctx context.Context, e *RawEvent) error {
	switch {
	case h.run == nil:
		return configError("handler %q: function is nil", h.id)
	case e == nil:
		return invalidArgument("invoke handler", "the event is nil")
	case !matchesAny(h.types, e.Type):
		return invalidArgument("invoke handler", "%s takes no events of type %s", h.id, e.Type)
	}
	return h.run(context.WithValue(ctx, eventKey{}, e), e)
}

// Handle returns a handler of events with the given type names. A name that
// ends in ".*" takes every type with that prefix ("order.*"), "*" takes all.
func Handle(id string, types []string, handle HandlerFunc, options ...HandlerOption) Handler {
	return newHandler(id, types, nil, handle, options)
}

func newHandler(id string, types []string, goType reflect.Type, run HandlerFunc, options []HandlerOption) Handler {
	h := Handler{id: id, types: slices.Clone(types), goType: goType, run: run, origin: caller(3)}
	for _, o := range options {
		if o != nil {
			o.applyHandler(&h)
		}
	}
	return h
}

// caller returns file:line of the code that called into this package.
func caller(skip int) string {
	_, file, line, ok := runtime.Caller(skip)
	if !ok {
		return "unknown place"
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// HandlerOption is an option of one handler.
type HandlerOption interface{ applyHandler(h *Handler) }

type handlerOption func(*Handler)

func (f handlerOption) applyHandler(h *Handler) { f(h) }

// Concurrency bounds how many of the handler's deliveries run at once in this
// process. The default, and the most, is Config.Concurrency.
func Concurrency(n int) HandlerOption {
	return handlerOption(func(h *Handler) { h.concurrency, h.set.concurrency = n, true })
}

// Timeout ends the handler's context after d; the attempt counts as failed if
// the handler then returns an error. The default is Config.HandlerTimeout. A
// transactional handler always has a timeout, its time budget: it must be
// shorter than the lease, and its default is Config.TransactionTimeout or what
// the store allows.
//
// A handler that ignores its ended context for longer than Config.CancelGrace
// loses its delivery: another process may then run it, or the next one of the
// ordering key, beside the one that hangs.
func Timeout(d time.Duration) HandlerOption {
	return handlerOption(func(h *Handler) { h.timeout, h.set.timeout = d, true })
}

// Retry sets the handler's retry policy. The default is Config.Retry.
func Retry(p RetryPolicy) HandlerOption {
	return handlerOption(func(h *Handler) { h.retry = &p })
}

// Transactional runs the handler inside a transaction of the store that also
// completes the delivery: both commit or neither, so its effects happen exactly
// once. The transaction is in the context (sqlite.Tx(ctx) …), and publishing
// with the context joins it. Keep such a handler short. On a store that retries
// transactions it may run more than once; only the last run counts.
func Transactional() HandlerOption {
	return handlerOption(func(h *Handler) { h.transactional = true })
}

// HoldKey makes a dead delivery block the deliveries behind it with the same
// ordering key, until an operator skips or requeues it. By default they pass.
func HoldKey() HandlerOption {
	return handlerOption(func(h *Handler) { h.holdKey = true })
}

// Aliases names ids that this handler had before. Deliveries that are stored
// under them are its own.
func Aliases(ids ...string) HandlerOption {
	return handlerOption(func(h *Handler) { h.aliases = append(h.aliases, ids...) })
}

// Rate bounds how many of the handler's deliveries start in this process: a
// burst of events, and then events per period per, evenly spread. So a span of
// one period can see up to twice that many, after a pause.
func Rate(events int, per time.Duration) HandlerOption {
	return handlerOption(func(h *Handler) { h.rateEvents, h.ratePer, h.set.rate = events, per, true })
}

// DrainOnly works off the deliveries that a retired handler still has, but lets
// no publisher create new ones.
func DrainOnly() HandlerOption {
	return handlerOption(func(h *Handler) { h.drainOnly = true })
}

// matches reports whether a type name fits a name or pattern.
func matches(pattern, name string) bool {
	if pattern == "*" || pattern == name {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasSuffix(prefix, ".") && strings.HasPrefix(name, prefix)
}

func matchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if matches(p, name) {
			return true
		}
	}
	return false
}
