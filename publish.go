package relaybus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
	"github.com/relaybus-go/relaybus/store"
)

// Publish appends events, of any mix of types, in the transaction that the
// context carries, or that the resolver finds. All are appended or none, and
// how many there are does not change the number of round trips.
//
// Without a transaction it is [ErrNoTransaction], or with the mode Optional the
// bus opens one for this call; see [OutcomeOf]. Inside a transaction nil means
// that the events are staged: they are durable when the transaction commits.
//
// A message that is refused is an [*EventValidationError]; then nothing was
// written, and the transaction is as it was.
func (b *Bus) Publish(ctx context.Context, messages ...Message) error {
	if err := b.usable("publish"); err != nil {
		return err
	}
	unknown := b.ensureCatalog(ctx)
	events, infos, err := b.prepareEvents(ctx, messages)
	if err != nil {
		return err
	}
	if unknown != nil {
		return fmt.Errorf("publish: %w", unknown)
	}
	tx, err := b.activeTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if tx != nil {
		return b.append(ctx, tx, events, infos)
	}
	if b.cfg.TransactionMode != Optional {
		return fmt.Errorf("publish: %w: pass the context that Transaction gives, or use PublishTx", ErrNoTransaction)
	}
	if len(events) == 0 {
		return nil
	}
	return b.transact(ctx, false, b.cfg.TransactionTimeout, func(ctx context.Context, tx store.Tx) error {
		return b.append(ctx, tx, events, infos)
	})
}

// PublishTx is [Bus.Publish] in a transaction that the caller opened by the
// driver's own means, such as sqlite.Join(tx). One of another database is
// [ErrForeignTx], a finished one [ErrTxDone], and one beside another open one in
// the context [ErrAmbiguousTx]. The bus can't see the commit; call
// [Bus.Committed] after it, or leave it to a few quick polls.
func (b *Bus) PublishTx(ctx context.Context, tx store.Tx, messages ...Message) error {
	if err := b.usable("publish"); err != nil {
		return err
	}
	if tx == nil {
		return fmt.Errorf("publish: %w: the transaction is nil", ErrNoTransaction)
	}
	unknown := b.ensureCatalog(ctx)
	events, infos, err := b.prepareEvents(ctx, messages)
	if err != nil {
		return err
	}
	if unknown != nil {
		return fmt.Errorf("publish: %w", unknown)
	}
	if tx, err = b.activeTx(ctx, tx); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return b.append(ctx, tx, events, infos)
}

// Committed tells the bus that a transaction which it joined has been
// committed, so that its events are handled at once.
func (b *Bus) Committed() {
	if e := b.currentEngine(); e != nil {
		e.Wake()
	}
}

// append writes events in an open transaction.
func (b *Bus) append(ctx context.Context, tx store.Tx, events []store.NewEvent, infos []EventInfo) error {
	if len(events) == 0 {
		return nil
	}
	appended, err := b.store.Append(ctx, tx, events, b.cfg.Clock.Now())
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	p := Published{Outcome: Staged}
	var unhandled []EventInfo
	for i, a := range appended {
		p.Deliveries += a.Deliveries
		if !a.Inserted {
			continue
		}
		p.Events = append(p.Events, infos[i])
		if len(events[i].Handlers) == 0 {
			unhandled = append(unhandled, infos[i])
		}
	}
	if len(p.Events) == 0 && p.Deliveries == 0 {
		return nil // everything was there already
	}
	if s := scopeOf(ctx, b); s != nil && sameTx(s.tx, tx) {
		s.published(p, unhandled)
		return nil
	}
	b.announce(ctx, []Published{p}, unhandled)
	if e := b.currentEngine(); e != nil {
		e.Nudge()
	}
	return nil
}

// announce tells the hooks of published events, and the log, once a type, of
// those that nobody handles.
func (b *Bus) announce(ctx context.Context, published []Published, unhandled []EventInfo) {
	for _, p := range published {
		each(&b.hooks, func(h HookPublished) { h.OnPublished(ctx, p) })
	}
	for _, info := range unhandled {
		each(&b.hooks, func(h HookUnhandled) { h.OnUnhandled(ctx, info) })
		if b.warned.first(info.Type) {
			b.cfg.Logger.WarnContext(ctx, "relaybus: an event was published that no handler takes", "type", info.Type)
		}
	}
}

// prepareEvents validates messages and makes events of them.
func (b *Bus) prepareEvents(ctx context.Context, messages []Message) ([]store.NewEvent, []EventInfo, error) {
	now := b.cfg.Clock.Now()
	cause := handling(ctx)
	events := make([]store.NewEvent, len(messages))
	infos := make([]EventInfo, len(messages))
	for i := range messages {
		m := messages[i]
		each(&b.hooks, func(h HookPublishing) { h.OnPublishing(ctx, &m) })
		if err := b.prepareEvent(&m, now, cause, &events[i]); err != nil {
			if invalid, ok := errors.AsType[*EventValidationError](err); ok {
				invalid.Index = i
				if checkTypeName(m.typeName) == "" {
					invalid.Type = m.typeName
				}
			}
			return nil, nil, fmt.Errorf("publish: %w", err)
		}
		e := &events[i].Event
		infos[i] = EventInfo{ID: e.ID, Type: e.Type, Key: e.Key, CorrelationID: e.CorrelationID, CausationID: e.CausationID}
	}
	for i := range messages {
		b.types.bind(messages[i].typeName, messages[i].goType)
	}
	return events, infos, nil
}

func (b *Bus) prepareEvent(m *Message, now time.Time, cause *RawEvent, e *store.NewEvent) error {
	if reason := checkTypeName(m.typeName); reason != "" {
		return &EventValidationError{Field: "type", Reason: reason}
	}
	if err := b.types.check(m.typeName, m.goType); err != nil {
		return &EventValidationError{Field: "type", Err: err}
	}
	if m.err != nil {
		return validationError("payload", m.err)
	}
	for _, text := range []struct {
		field, value string
		given        bool
	}{
		{"id", m.id, m.set.id},
		{"key", m.key, m.set.key},
		{"correlation id", m.correlationID, m.set.correlation},
		{"causation id", m.causationID, m.set.causation},
	} {
		if reason := checkText(text.value, maxName); text.given && reason != "" {
			return &EventValidationError{Field: text.field, Reason: reason}
		}
	}
	if err := jsonvalue.Check(m.payload, jsonvalue.Limits{MaxBytes: b.cfg.MaxPayload}); err != nil {
		return &EventValidationError{Field: "payload", Err: err}
	}
	headers, err := m.encodeHeaders(b.cfg.MaxHeaders)
	if err != nil {
		return err
	}
	due, err := m.due(now)
	if err != nil {
		return err
	}
	e.Event = store.Event{
		ID: m.id, Type: m.typeName, Source: b.cfg.Source, Key: m.key,
		Payload: m.payload, Headers: headers,
		CorrelationID: m.correlationID, CausationID: m.causationID, CreatedAt: now,
	}
	if !m.set.id {
		e.ID, e.Fresh = b.cfg.GenerateID(), b.ownIDs
		if reason := checkText(e.ID, maxName); reason != "" {
			return &EventValidationError{Field: "id", Reason: "the generated one " + reason}
		}
	}
	if cause != nil {
		if !m.set.correlation {
			e.CorrelationID = cause.CorrelationID
			if e.CorrelationID == "" {
				e.CorrelationID = cause.ID
			}
		}
		if !m.set.causation {
			e.CausationID = cause.ID
		}
	}
	e.DueAt = due
	e.Handlers = b.catalog.handlersOf(m.typeName)
	return nil
}

// due is when the deliveries of a message may start.
func (m *Message) due(now time.Time) (time.Time, error) {
	switch {
	case m.set.delay && m.set.due:
		return now, &EventValidationError{Field: "delay", Reason: "a delay and a due time are given"}
	case m.set.delay && (m.delay < 0 || m.delay > maxDelay):
		return now, &EventValidationError{Field: "delay", Reason: "must be from 0 to 10 years"}
	case m.set.delay:
		// Up to the next millisecond, so that it is never short.
		return now.Add((m.delay + time.Millisecond - 1).Truncate(time.Millisecond)), nil
	case m.set.due && (m.dueAt.IsZero() || m.dueAt.After(now.Add(maxDelay))):
		return now, &EventValidationError{Field: "due time", Reason: "must be set, and at most 10 years ahead"}
	case m.set.due && m.dueAt.After(now):
		return stamp(m.dueAt.Add(time.Millisecond - 1)), nil
	default:
		return now, nil
	}
}

// encodeHeaders returns the headers as a JSON object, or nil without any.
func (m *Message) encodeHeaders(most int) ([]byte, error) {
	refused := func(reason string, err error) error {
		return &EventValidationError{Field: "headers", Reason: reason, Err: err}
	}
	raw := m.rawHeaders
	if len(m.headers) > 0 {
		if m.set.rawHeaders && jsonvalue.CheckObject(raw, jsonvalue.Limits{MaxBytes: most}) != nil {
			return nil, refused("the raw headers are no JSON object", nil)
		}
		object := []byte{'{'}
		if m.set.rawHeaders {
			object = jsonvalue.Compact(object[:0], raw)
			object = object[:len(object)-1]
		}
		for _, h := range m.headers {
			if reason := checkText(h.name, maxName); reason != "" {
				return nil, refused("a name "+reason, nil)
			}
			if h.err != nil {
				return nil, validationError("headers", h.err)
			}
			// By itself: a value could go on into the object that is put around it.
			if err := jsonvalue.Check(h.value, jsonvalue.Limits{MaxBytes: most}); err != nil {
				return nil, refused("a value", err)
			}
			if len(object) > 1 {
				object = append(object, ',')
			}
			name, err := encode(h.name)
			if err != nil {
				return nil, validationError("headers", err)
			}
			object = append(append(append(object, name...), ':'), h.value...)
		}
		object = append(object, '}')
		raw = object
	} else if !m.set.rawHeaders {
		return nil, nil
	}
	if err := jsonvalue.CheckObject(raw, jsonvalue.Limits{MaxBytes: most}); err != nil {
		return nil, refused("", err)
	}
	for name := range jsonvalue.Members(raw) {
		if reason := checkText(name, maxName); reason != "" {
			return nil, refused("a name "+reason, nil)
		}
	}
	return raw, nil
}

// validationError makes err an *EventValidationError of the field.
func validationError(field string, err error) error {
	if invalid, ok := errors.AsType[*EventValidationError](err); ok {
		own := *invalid
		own.Field = field
		return &own
	}
	return &EventValidationError{Field: field, Err: err}
}

// SetHeader adds a header to a message, for a [HookPublishing]. A header of
// that name that the message has already stays as it is.
func (m *Message) SetHeader(name string, value any) {
	for _, h := range m.headers {
		if h.name == name {
			return
		}
	}
	if m.set.rawHeaders && jsonvalue.CheckObject(m.rawHeaders, jsonvalue.Limits{}) == nil {
		if _, has := (Headers{raw: m.rawHeaders}).Raw(name); has {
			return
		}
	}
	encoded, err := encode(value)
	m.headers = append(slices.Clip(m.headers), header{name: name, value: encoded, err: err})
}
