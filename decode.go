package relaybus

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"io"
	"reflect"
)

var errManyValues = errors.New("more than one JSON value")

// unmarshalerOf returns what decodes payloads into a type. Only interfaces make a
// decoder necessary that keeps numbers, which costs twice the time.
func unmarshalerOf(t reflect.Type) func(payload []byte, to any) error {
	if holdsInterface(t, make(map[reflect.Type]struct{})) {
		return unmarshalNumbers
	}
	return json.Unmarshal
}

func unmarshalNumbers(payload []byte, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if err := decoder.Decode(to); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errManyValues
	}
	return nil
}

// holdsInterface reports whether JSON that is decoded into the type may end up in
// an interface. A type that decodes itself does so by its own means.
func holdsInterface(t reflect.Type, seen map[reflect.Type]struct{}) bool {
	if _, ok := seen[t]; ok {
		return false
	}
	seen[t] = struct{}{}
	pointer := reflect.PointerTo(t)
	if pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) || pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return false
	}
	switch t.Kind() { //nolint:exhaustive // the others hold nothing
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return holdsInterface(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if holdsInterface(field.Type, seen) {
				return true
			}
		}
	}
	return false
}
