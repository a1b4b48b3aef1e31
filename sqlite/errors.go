package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/relaybus-go/relaybus/store"
)

// coded returns the class for a primary result code, and a sentence.
func coded(code int) *store.Error {
	failed := func(class error, detail string) *store.Error { return &store.Error{Class: class, Detail: detail} }
	switch code {
	case codeBusy, codeLocked, codeProtocol:
		return failed(store.ErrUnavailable, "another process holds the database's lock")
	case codeReadOnly:
		return failed(store.ErrUnavailable, "the database is read-only")
	case codeFull:
		return failed(store.ErrUnavailable, "the disk is full")
	case codeCorrupt, codeNotADB:
		return failed(store.ErrUnavailable, "the file is damaged or no SQLite database")
	case codeCantOpen, codePerm, codeAuth:
		return failed(store.ErrUnavailable, "the file can't be opened")
	case codeTooBig:
		return failed(store.ErrInvalidArgument, "a value is larger than SQLite allows")
	case codeError, codeSchema:
		return failed(store.ErrConfiguration, "the database's tables are not those that Setup made")
	case codeConstrain:
		return failed(store.ErrConflict, "")
	case codeIOErr, codeNoMem, codeInterrupt:
		return failed(store.ErrUnavailable, "")
	default:
		return failed(store.ErrUnavailable, "")
	}
}

// translate makes every error that leaves the package a [*store.Error].
func (s *Store) translate(op string, err error) error {
	if err == nil {
		return nil
	}
	if typed, ok := errors.AsType[*store.Error](err); ok {
		if typed.Op == op {
			return err
		}
		return &store.Error{Op: op, Class: typed.Class, Also: typed.Also, Detail: typed.Detail, Err: err}
	}
	if code, ok := resultCode(err); ok {
		if code == codeBusySnapshot {
			return store.NewError(op, store.ErrConflict,
				"somebody wrote after the transaction had read; begin it immediately", err)
		}
		e := coded(code & 0xff)
		e.Op, e.Err = op, err
		return e
	}
	switch {
	case s.closed.Load():
		return store.NewError(op, store.ErrClosed, "", err)
	case errors.Is(err, sql.ErrTxDone):
		return store.NewError(op, store.ErrTxDone, "", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return store.NewError(op, store.ErrTimeout, "", err)
	case errors.Is(err, errNoWAL):
		return store.NewError(op, store.ErrConfiguration, "", err)
	default:
		return store.NewError(op, store.ErrUnavailable, "", err)
	}
}

// uncertain marks the error of a COMMIT after which the transaction may be on
// the disk: the write-ahead log may have been written although the disk
// reported an error, and the next process to open the file would find it.
func uncertain(op string, err error) error {
	return &store.Error{Op: op, Class: store.ErrUnavailable, Also: store.ErrOutcomeUnknown, Err: err}
}

// ended is nil while the context has not ended.
func ended(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if !errors.Is(cause, ctx.Err()) {
		cause = errors.Join(ctx.Err(), cause)
	}
	return store.NewError(op, store.ErrTimeout, "the context ended first; nothing was changed", cause)
}

// usable is nil while neither the store is closed nor the context has ended.
func (s *Store) usable(ctx context.Context, op string) error {
	if s.closed.Load() {
		return store.NewError(op, store.ErrClosed, "", nil)
	}
	return ended(ctx, op)
}

func invalid(op, detail string) error {
	return store.NewError(op, store.ErrInvalidArgument, detail, nil)
}
