package memstore

import "github.com/relaybus-go/relaybus/store"

// lost is the error of a step whose reply got lost.
func lost(op string, cause error) error {
	return &store.Error{Op: op, Class: store.ErrUnavailable, Also: store.ErrOutcomeUnknown, Err: cause}
}

// failed is the error of a step that did not happen.
func failed(op string, cause error) error {
	return store.NewError(op, store.ErrUnavailable, "", cause)
}
