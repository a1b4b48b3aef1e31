package relaybus

import (
	"encoding/json"
	"iter"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

// Headers are the headers of an event: a JSON object, kept as it was written.
// The zero value has none.
type Headers struct{ raw []byte }

// Get returns the header's value if it is a string, and "" otherwise.
func (h Headers) Get(name string) string {
	raw, ok := h.Raw(name)
	if !ok {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// Raw returns the header's value as JSON, and whether it is there.
func (h Headers) Raw(name string) (json.RawMessage, bool) {
	for n, value := range h.All() {
		if n == name {
			return value, true
		}
	}
	return nil, false
}

// All yields names and JSON values in the order in which they were written.
func (h Headers) All() iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		if len(h.raw) == 0 {
			return
		}
		for name, value := range jsonvalue.Members(h.raw) {
			if !yield(name, json.RawMessage(value)) {
				return
			}
		}
	}
}

// JSON returns the headers as a JSON object, or nil when the event was
// published without any. The caller must not change it.
func (h Headers) JSON() json.RawMessage { return h.raw }
