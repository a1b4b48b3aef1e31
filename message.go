package relaybus

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

// Message is an event that is ready to be published: see [EventType.New] and
// [Raw]. A message whose payload can't be encoded carries the error until it is
// published.
type Message struct {
	typeName string
	goType   reflect.Type
	payload  []byte
	err      error

	id, key                    string
	correlationID, causationID string
	headers                    []header
	rawHeaders                 []byte
	delay                      time.Duration
	dueAt                      time.Time
	set                        messageSet
}

// messageSet remembers which options were given, as an empty value is not the
// same as none.
type messageSet struct {
	id, key, correlation, causation, delay, due, rawHeaders bool
}

type header struct {
	name  string
	value []byte
	err   error
}

// Type returns the name of the message's event type.
func (m Message) Type() string { return m.typeName }

// PublishOption is an option of one message.
type PublishOption interface{ applyMessage(m *Message) }

type publishOption func(*Message)

func (f publishOption) applyMessage(m *Message) { f(m) }

// ID sets the event's id; by default one is generated. Publishing an id that
// exists adds no second event, only deliveries for handlers that the event
// never had one for. 1 to 255 bytes without control characters.
func ID(id string) PublishOption {
	return publishOption(func(m *Message) { m.id, m.set.id = id, true })
}

// Key sets the ordering key: events with the same key reach each handler one at
// a time, in commit order. 1 to 255 bytes without control characters.
func Key(key string) PublishOption {
	return publishOption(func(m *Message) { m.key, m.set.key = key, true })
}

// CorrelationID sets the correlation id. Inside a handler the default is that of
// the event at hand. 1 to 255 bytes without control characters.
func CorrelationID(id string) PublishOption {
	return publishOption(func(m *Message) { m.correlationID, m.set.correlation = id, true })
}

// CausationID sets the causation id. Inside a handler the default is the id of
// the event at hand. 1 to 255 bytes without control characters.
func CausationID(id string) PublishOption {
	return publishOption(func(m *Message) { m.causationID, m.set.causation = id, true })
}

// Header sets one header to a value that is encoded as JSON. The name has 1 to
// 255 bytes without control characters; a name can be given once.
func Header(name string, value any) PublishOption {
	encoded, err := encode(value)
	return publishOption(func(m *Message) {
		m.headers = append(m.headers, header{name: name, value: encoded, err: err})
	})
}

// RawHeaders sets all headers to a JSON object, as it is. nil, which is what
// [Headers.JSON] returns for an event without headers, sets none.
func RawHeaders(object json.RawMessage) PublishOption {
	return publishOption(func(m *Message) { m.rawHeaders, m.set.rawHeaders = object, object != nil })
}

// Delay makes the deliveries due d after the publish. It is not negative and at
// most 10 years.
func Delay(d time.Duration) PublishOption {
	return publishOption(func(m *Message) { m.delay, m.set.delay = d, true })
}

// DueAt makes the deliveries due at t, which is kept to the millisecond. A time
// that has passed means at once.
func DueAt(t time.Time) PublishOption {
	return publishOption(func(m *Message) { m.dueAt, m.set.due = t, true })
}

// Raw returns a message of the named event type whose payload is the JSON
// value as it is.
func Raw(typeName string, payload json.RawMessage, options ...PublishOption) Message {
	return newMessage(typeName, nil, payload, nil, options)
}

func newMessage(name string, goType reflect.Type, payload []byte, err error, options []PublishOption) Message {
	m := Message{typeName: name, goType: goType, payload: payload, err: err}
	for _, o := range options {
		if o != nil {
			o.applyMessage(&m)
		}
	}
	return m
}

// encode returns the JSON of a value. Raw JSON stays as it is. Text that is not
// valid UTF-8, which encoding/json would replace silently, is an error.
func encode(value any) (encoded []byte, err error) {
	if raw, ok := value.(json.RawMessage); ok {
		return raw, nil
	}
	defer func() {
		if recover() != nil {
			encoded, err = nil, &EventValidationError{Field: "payload", Reason: "its encoding panicked"}
		}
	}()
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, &EventValidationError{Field: "payload", Reason: "it can't be encoded as JSON", Err: withoutPayload(err)}
	}
	encoded = bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if jsonvalue.HasEscapedReplacement(encoded) {
		return nil, &EventValidationError{Field: "payload", Reason: "a string is not valid UTF-8"}
	}
	return encoded, nil
}

// withoutPayload keeps of an encoding error what holds no piece of the value.
func withoutPayload(err error) error {
	switch err.(type) { //nolint:errorlint // only errors made by encoding/json itself are known to hold no value
	case *json.UnsupportedTypeError:
		return err
	default:
		return nil
	}
}
