package sqlite

import "time"

// uninterrupted is a context that never ends, for the few statements that
// belong to a connection and to no caller.
type uninterrupted struct{}

func (uninterrupted) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (uninterrupted) Done() <-chan struct{}                   { return nil }
func (uninterrupted) Err() error                              { return nil }
func (uninterrupted) Value(any) any                           { return nil }
