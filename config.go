package relaybus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/transport"
)

// TransactionMode says what a publish without a transaction does.
type TransactionMode uint8

const (
	// Required makes it an error, ErrNoTransaction: a forgotten context is found
	// by the first test, and never by a lost event.
	Required TransactionMode = iota
	// Optional opens a transaction for the publish alone: the event is durable,
	// but not atomic with the caller's writes.
	Optional
)

// Never as a retention keeps for ever.
const Never time.Duration = -1

// Retention says how long finished deliveries are kept.
type Retention struct {
	// Completed is how long an event is kept after its last completion, as
	// history and as the record that keeps its id unique. Default 7 days;
	// Never keeps it.
	Completed time.Duration
	// Dead is how long dead deliveries are kept. Default Never.
	Dead time.Duration
	// Interval is the time between two runs. Default 1 hour; Never runs only
	// by PurgeExpired.
	Interval time.Duration
	// BatchSize is how many rows one transaction deletes. Default 500.
	BatchSize int
}

// Config configures a bus. The zero value works.
type Config struct {
	// Source is the service name recorded on every event. Default "relaybus".
	Source string
	// TransactionMode says what a publish without a transaction does. Default
	// Required.
	TransactionMode TransactionMode
	// Resolver finds the transaction that an ORM has put into the context. It
	// returns nil when there is none.
	Resolver func(ctx context.Context) (store.Tx, error)
	// TransactionTimeout is the time budget of transactions that the bus opens,
	// retries included. Default 5 s.
	TransactionTimeout time.Duration
	// EventTypes, when set, are all event types that may be published and
	// subscribed by this bus.
	EventTypes []AnyEventType

	// Concurrency is how many handlers run at once. Default 10, at most 10,000.
	Concurrency int
	// BatchSize is how many deliveries are claimed at once at most. Default
	// Concurrency, and up to 400 as long as handlers finish as many within 50 ms.
	BatchSize int
	// PollInterval is the wait between claims when idle. Default 1 s.
	PollInterval time.Duration
	// LeaseDuration is how long a claim holds unless it is renewed, which
	// happens every third of it. Default 30 s.
	LeaseDuration time.Duration
	// ShutdownTimeout is how long Stop waits for running handlers. Default 30 s.
	ShutdownTimeout time.Duration
	// HandlerTimeout is the default timeout of handlers. 0, the default, is none.
	HandlerTimeout time.Duration
	// CancelGrace is how long a handler may go on after its context was
	// cancelled before the bus gives its delivery back without it. Default 1 s.
	// A handler that ignores its context for longer keeps its slot and its
	// ordering key in this process, but another process may run the delivery,
	// or the next one of the key, beside it.
	CancelGrace time.Duration
	// CompletionLinger is how long a completion waits for others to share its
	// write. Default 1 ms; Never turns it off.
	CompletionLinger time.Duration
	// Retry is the default retry policy.
	Retry RetryPolicy
	// PublishOnly starts no dispatcher.
	PublishOnly bool
	// SkipSetup leaves the database as it is at Start.
	SkipSetup bool
	// Retention says how long finished deliveries are kept.
	Retention Retention

	// NoCatalog creates deliveries only for this process's own handlers. By
	// default also for those that other processes have recorded in the store.
	NoCatalog bool
	// CatalogInterval is how often the catalogue is read again. Default 1 s.
	CatalogInterval time.Duration

	// MaxPayload is the most bytes of a payload. Default 896 KiB, which fits
	// every store and broker together with its headers; at most 15 MiB, or what
	// the store allows.
	MaxPayload int
	// MaxHeaders is the most bytes of all headers together. Default 64 KiB; at
	// most 1 MiB.
	MaxHeaders int

	// Transports connect the bus to brokers, Routes send events to them, and
	// Subscriptions take messages from them.
	Transports    []transport.Transport
	Routes        []Route
	Subscriptions []Subscription

	// Middleware wraps every handler; the first is the outermost.
	Middleware []Middleware
	// Hooks observe the bus.
	Hooks []Hook
	// Logger gets what an operator should know. Payloads, headers and
	// credentials are never logged. Default slog.Default().
	Logger *slog.Logger
	// Clock, GenerateID and Random replace the system's. Random returns numbers
	// in [0, 1). Default ids are UUIDs of version 7.
	Clock      Clock
	GenerateID func() string
	Random     func() float64
	// Owner names this worker in the store. Default: host name, process id and
	// a random number.
	Owner string
}

const (
	defaultMaxPayload = 896 << 10
	defaultMaxHeaders = 64 << 10
	mostPayload       = 15 << 20
	mostHeaders       = 1 << 20
	mostConcurrency   = 10_000
)

func orDefault[T comparable](value *T, byDefault T) {
	var zero T
	if *value == zero {
		*value = byDefault
	}
}

func (c Config) withDefaults() Config {
	orDefault(&c.Source, "relaybus")
	orDefault(&c.TransactionTimeout, 5*time.Second)
	orDefault(&c.Concurrency, 10)
	orDefault(&c.PollInterval, time.Second)
	orDefault(&c.LeaseDuration, 30*time.Second)
	orDefault(&c.ShutdownTimeout, 30*time.Second)
	orDefault(&c.CancelGrace, time.Second)
	orDefault(&c.CompletionLinger, time.Millisecond)
	orDefault(&c.CatalogInterval, time.Second)
	orDefault(&c.Retention.Completed, 7*24*time.Hour)
	orDefault(&c.Retention.Dead, Never)
	orDefault(&c.Retention.Interval, time.Hour)
	orDefault(&c.Retention.BatchSize, 500)
	orDefault(&c.MaxPayload, defaultMaxPayload)
	orDefault(&c.MaxHeaders, defaultMaxHeaders)
	c.Retry = c.Retry.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = SystemClock{}
	}
	c.Clock = stampClock{c.Clock}
	if c.Random == nil {
		c.Random = systemRandom
	}
	if c.GenerateID == nil {
		c.GenerateID = newIDs(c.Clock).next
	}
	orDefault(&c.Owner, systemOwner())
	return c
}

// fieldError says what is wrong with a field.
func fieldError(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...))
}

// validate reports everything that is wrong at once.
func (c Config) validate(f store.Features) error {
	var errs []error
	check := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	number := func(field string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, fmt.Errorf("%s %d: must be from %d to %d", field, n, least, most))
		}
	}
	span := func(field string, d, least, most time.Duration) {
		if d < least || d > most {
			errs = append(errs, fmt.Errorf("%s %v: must be from %v to %v", field, d, least, most))
		}
	}
	if reason := checkText(c.Source, maxName); reason != "" {
		errs = append(errs, fieldError("Source", "%s", reason))
	}
	if reason := checkText(c.Owner, maxName); reason != "" {
		errs = append(errs, fieldError("Owner", "%s", reason))
	}
	if c.TransactionMode > Optional {
		errs = append(errs, fmt.Errorf("TransactionMode %d: must be Required or Optional", c.TransactionMode))
	}
	number("Concurrency", c.Concurrency, 1, mostConcurrency)
	number("BatchSize", c.BatchSize, 0, mostConcurrency)
	number("Retention.BatchSize", c.Retention.BatchSize, 1, 100_000)
	number("MaxPayload", c.MaxPayload, 1, mostPayload)
	number("MaxHeaders", c.MaxHeaders, 2, mostHeaders)
	if f.MaxPayloadBytes > 0 && c.MaxPayload > f.MaxPayloadBytes {
		errs = append(errs, fmt.Errorf("MaxPayload %d: this store takes at most %d", c.MaxPayload, f.MaxPayloadBytes))
	}
	span("TransactionTimeout", c.TransactionTimeout, time.Millisecond, time.Hour)
	span("PollInterval", c.PollInterval, time.Millisecond, time.Hour)
	span("LeaseDuration", c.LeaseDuration, 30*time.Millisecond, 24*time.Hour)
	span("ShutdownTimeout", c.ShutdownTimeout, 0, 24*time.Hour)
	span("HandlerTimeout", c.HandlerTimeout, 0, maxDelay)
	span("CancelGrace", c.CancelGrace, time.Millisecond, time.Hour)
	span("CatalogInterval", c.CatalogInterval, time.Millisecond, time.Hour)
	if c.CompletionLinger != Never {
		span("CompletionLinger", c.CompletionLinger, 0, time.Second)
	}
	for _, r := range []struct {
		field string
		d     time.Duration
	}{
		{"Retention.Completed", c.Retention.Completed},
		{"Retention.Dead", c.Retention.Dead},
		{"Retention.Interval", c.Retention.Interval},
	} {
		if r.d != Never {
			span(r.field, r.d, time.Millisecond, 10*maxDelay)
		}
	}
	check(c.Retry.validate("Retry"))
	for i, h := range c.Hooks {
		if !isHook(h) {
			errs = append(errs, fieldError(fmt.Sprintf("Hooks[%d]", i), "%T implements no hook", h))
		}
	}
	for i, m := range c.Middleware {
		if m == nil {
			errs = append(errs, fieldError(fmt.Sprintf("Middleware[%d]", i), "is nil"))
		}
	}
	goTypes := make(map[string]reflect.Type)
	for i, t := range c.EventTypes {
		if t == nil {
			errs = append(errs, fieldError(fmt.Sprintf("EventTypes[%d]", i), "is nil"))
		} else if reason := checkTypeName(t.Name()); reason != "" {
			errs = append(errs, fieldError(fmt.Sprintf("EventTypes[%d]", i), "name %s", reason))
		} else if own := t.payloadType(); own != nil {
			if old := goTypes[t.Name()]; old != nil && old != own {
				errs = append(errs, fieldError(fmt.Sprintf("EventTypes[%d]", i), "%s is defined with two Go types, %v and %v", t.Name(), old, own))
			}
			goTypes[t.Name()] = own
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfiguration, errors.Join(errs...))
}
