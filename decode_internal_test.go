package relaybus

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

type ownDecoding struct{ Value any }

func (o *ownDecoding) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &o.Value) }

type recursive struct {
	Next  *recursive
	Other []recursive
}

type embedding struct {
	recursive

	Inner struct{ Values map[string][]any }
}

// What may hold an interface is decoded so that numbers keep their digits, and
// only that: it costs more.
func TestHoldsInterface(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   reflect.Type
		want bool
	}{
		{reflect.TypeFor[any](), true},
		{reflect.TypeFor[*[]map[string]any](), true},
		{reflect.TypeFor[[2]any](), true},
		{reflect.TypeFor[embedding](), true},
		{reflect.TypeFor[struct{ Err error }](), true},
		{reflect.TypeFor[recursive](), false},
		{reflect.TypeFor[ownDecoding](), false},
		{reflect.TypeFor[*ownDecoding](), false},
		{reflect.TypeFor[struct {
			At   time.Time
			Text string
			List []int64
			Raw  json.RawMessage
		}](), false},
	} {
		if got := holdsInterface(c.of, map[reflect.Type]struct{}{}); got != c.want {
			t.Errorf("holdsInterface(%s) = %v, want %v", c.of, got, c.want)
		}
	}
}
