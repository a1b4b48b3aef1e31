package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/relaybus-go/relaybus/store"
)

// SQLSTATE codes (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	codeFeatureNotSupported   = "0A000" // a standby that is to write; also a cached plan whose result type changed
	codeDivisionByZero        = "22012"
	codeUniqueViolation       = "23505"
	codeReadOnly              = "25006"
	codeAborted               = "25P02"
	codeIdleInTransactionTime = "25P03"
	codeTransactionTimeout    = "25P04"
	codeNoStatement           = "26000"
	codeNoSchema              = "3F000"
	codeSerializationFailure  = "40001"
	codeDeadlock              = "40P01"
	codePrivilege             = "42501"
	codeUndefinedTable        = "42P01"
	codeDuplicateStatement    = "42P05"
	codeServerLimit           = "53400"
	codeProgramLimit          = "54000"
	codeLockNotAvailable      = "55P03"
	codeQueryCanceled         = "57014"
)

// stateOf returns the SQLSTATE of an error of any driver for PostgreSQL.
func stateOf(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// coded returns the class for a SQLSTATE, and a sentence.
func coded(state string) *store.Error {
	failed := func(class error, detail string) *store.Error { return &store.Error{Class: class, Detail: detail} }
	switch state {
	case codeSerializationFailure, codeDeadlock, codeLockNotAvailable, codeUniqueViolation:
		return failed(store.ErrConflict, "")
	case codeReadOnly:
		return failed(store.ErrUnavailable, "the server takes no writes")
	case codeFeatureNotSupported:
		return failed(store.ErrUnavailable, "")
	case codeNoStatement, codeDuplicateStatement:
		return failed(store.ErrUnavailable, "a prepared statement is not on the connection that it was prepared on; "+
			"behind a pooler of transactions give the pool a DefaultQueryExecMode that prepares none by name")
	case codeQueryCanceled, codeTransactionTimeout, codeIdleInTransactionTime:
		return failed(store.ErrTimeout, "the server has cancelled the statement or the transaction")
	case codeUndefinedTable, codeNoSchema:
		return &store.Error{
			Class: store.ErrConfiguration, Also: store.ErrNotSetUp, Detail: "call Setup before anything else",
		}
	case codeServerLimit:
		return failed(store.ErrConfiguration, "a limit of the server's configuration is too low")
	case codeAborted:
		return failed(store.ErrTxDone, "an earlier error has aborted the transaction")
	default:
		return codedByClass(state)
	}
}

// codedByClass goes by the first two characters of a SQLSTATE. Only what is likely to
// pass by itself is an outage: a transactional handler is tried again for as long as
// there is one. Whatever else is unknown comes from the caller's own tables, such as
// the error of a trigger.
func codedByClass(state string) *store.Error {
	switch state[:min(2, len(state))] {
	case "08", "53", "55", "57", "58", "XX":
		return &store.Error{Class: store.ErrUnavailable}
	case "28":
		// Passwords are changed while processes run, which is no fault of a handler's.
		return &store.Error{
			Class: store.ErrConfiguration, Also: store.ErrUnavailable, Detail: "the server refuses the role or its password",
		}
	case "3D", "42":
		return &store.Error{Class: store.ErrConfiguration}
	case "40":
		return &store.Error{Class: store.ErrConflict}
	case "22":
		return &store.Error{Class: store.ErrInvalidArgument, Detail: "the server can't take a value"}
	case "23", "44":
		return &store.Error{Class: store.ErrInvalidArgument, Detail: "a constraint is violated"}
	case "54":
		return &store.Error{Class: store.ErrInvalidArgument, Detail: "a limit of the server is exceeded, such as the size of a value"}
	default:
		return &store.Error{Class: store.ErrInvalidArgument, Detail: "the database refuses the statement or the transaction"}
	}
}

// refused is the error of a COMMIT that the server has refused; notifies says that
// the transaction notifies other processes.
func refused(op string, err error, notifies bool) error {
	if notifies && stateOf(err) == codeProgramLimit {
		return store.NewError(op, store.ErrUnavailable,
			"the server's queue of notifications may be full; does a session that listens stay in a transaction?", err)
	}
	return translate(op, err)
}

// translate makes every error that leaves the package a [*store.Error].
func translate(op string, err error) error {
	if err == nil {
		return nil
	}
	if typed, ok := errors.AsType[*store.Error](err); ok {
		if typed.Op == op {
			return err
		}
		return &store.Error{Op: op, Class: typed.Class, Also: typed.Also, Detail: typed.Detail, Err: err}
	}
	if state := stateOf(err); state != "" {
		e := coded(state)
		e.Op, e.Err = op, err
		return e
	}
	switch {
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		return store.NewError(op, store.ErrTxDone, "", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return store.NewError(op, store.ErrTimeout, "", err)
	default:
		return store.NewError(op, store.ErrUnavailable, "", err)
	}
}

// uncertain is the error of a COMMIT that may have been carried out.
func uncertain(op string, err error) error {
	e := &store.Error{Op: op, Class: store.ErrUnavailable, Also: store.ErrOutcomeUnknown, Err: err}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Class = store.ErrTimeout
	}
	return e
}

// isRefusal reports whether the server itself has said that a commit failed. A
// server that is being shut down may say so after it has committed.
func isRefusal(err error) bool {
	state := stateOf(err)
	return state != "" && !strings.HasPrefix(state, "57P") && !strings.HasPrefix(state, "08")
}

// isTransient reports whether a transaction of ours may be run again: it was
// refused because of a concurrent one, or the connection it ran on is of no use.
func isTransient(err error) bool {
	if errors.Is(err, store.ErrOutcomeUnknown) {
		return false
	}
	switch stateOf(err) {
	case codeSerializationFailure, codeDeadlock, codeLockNotAvailable,
		codeReadOnly, codeFeatureNotSupported, codeNoStatement, codeDuplicateStatement:
		return true
	case "":
		return pgconn.SafeToRetry(err) || isBroken(err)
	default:
		return isBroken(err)
	}
}

// isBroken reports whether the connection is gone, or is to be given up.
func isBroken(err error) bool {
	state := stateOf(err)
	if state == "" {
		typed, ok := errors.AsType[*store.Error](err)
		var connect *pgconn.ConnectError
		if ok || errors.As(err, &connect) {
			return ok && errors.Is(typed, store.ErrUnavailable)
		}
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, pgx.ErrNoRows) && !errors.Is(err, pgx.ErrTxClosed)
	}
	return strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08") || takesNoWrites(err) ||
		state == codeIdleInTransactionTime || state == codeTransactionTimeout
}

// takesNoWrites reports whether the server refuses to write. A standby says that the
// transaction that is to write is not supported, which is also what is said of a
// cached plan that fits no more: a new connection helps with both.
func takesNoWrites(err error) bool {
	state := stateOf(err)
	return state == codeReadOnly || state == codeFeatureNotSupported
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

func invalid(op, detail string) error {
	return store.NewError(op, store.ErrInvalidArgument, detail, nil)
}
