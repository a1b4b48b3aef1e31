package sqlite

import (
	"database/sql/driver"
	"errors"
	"net/url"

	modernc "modernc.org/sqlite"
)

// This file is the only one that knows which driver is underneath.

// driverConn is what the driver's connections can do. It names what goes beyond
// database/sql, too, so that callers reach it with [database/sql.Conn.Raw].
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator

	NewBackup(dstURI string) (*modernc.Backup, error)
	NewRestore(srcURI string) (*modernc.Backup, error)
	Serialize() ([]byte, error)
	Deserialize(buf []byte) error
}

// newConnector opens connections to the file. They wait for locks by our own
// means, which a context can end; a reader sleeps a little by those of SQLite,
// for a lock that it meets in the middle of a result.
func newConnector(path string, c Config, readOnly bool) (driver.Connector, error) {
	pragmas := []string{"temp_store(memory)", "cache_size(-8000)"}
	if readOnly {
		pragmas = append(pragmas, "query_only(1)", "busy_timeout(5)")
	} else {
		pragmas = append(pragmas, "busy_timeout(0)", "journal_size_limit(67108864)")
	}
	if c.Synchronous == Normal {
		pragmas = append(pragmas, "synchronous(normal)")
	} else {
		pragmas = append(pragmas, "synchronous(full)")
	}
	query := url.Values{"_pragma": pragmas}
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query.Encode()}).String()
	return modernc.NewConnector(dsn)
}

// resultCode returns SQLite's extended result code of an error.
func resultCode(err error) (code int, ok bool) {
	if e, ok := errors.AsType[*modernc.Error](err); ok {
		return e.Code(), true
	}
	return 0, false
}
