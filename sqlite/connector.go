package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
)

// connector opens connections that prepare the store's statements once, wait
// for other processes with the caller's context, and never let a statement of
// a transaction run outside of it.
type connector struct {
	driver.Connector
	busyTimeout time.Duration
	// statements are the texts whose prepared form is kept.
	statements map[string]struct{}
	// writer connections begin with BEGIN IMMEDIATE and put the file into WAL mode.
	writer bool
	meter  *meter
}

var errNoWAL = errors.New("the database can't use a write-ahead log where it is; put the file on a local disk")

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	var inner driver.Conn
	err := c.wait(ctx, func() (err error) {
		inner, err = c.Connector.Connect(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, ok := inner.(driverConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("driver connection %T lacks methods that the store needs", inner), inner.Close())
	}
	opened := &conn{driverConn: raw, c: c, cached: make(map[string]*stmt)}
	if c.writer {
		if err := c.useWAL(ctx, opened); err != nil {
			return nil, errors.Join(err, opened.Close())
		}
	}
	return opened, nil
}

// useWAL switches the journal mode. SQLite gives up at once when two processes
// do that at the same time, whatever the busy timeout, so it is tried again.
func (c *connector) useWAL(ctx context.Context, opened *conn) error {
	var mode string
	err := c.wait(ctx, func() (err error) {
		mode, err = readText(ctx, opened.driverConn, "PRAGMA journal_mode=WAL")
		return err
	})
	if err == nil && !strings.EqualFold(mode, "wal") {
		err = errNoWAL
	}
	return err
}

// wait calls f until it does something else than hit a lock, the context ends,
// or the busy timeout has passed.
func (c *connector) wait(ctx context.Context, f func() error) error {
	err := f()
	if !isBusy(err) {
		return err
	}
	deadline := time.Now().Add(c.busyTimeout)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for try := 0; isBusy(err) && time.Now().Before(deadline); try++ {
		// Other processes hold the lock for a commit, a few milliseconds. Who
		// sleeps longer than that is overtaken by those who don't.
		timer.Reset(min(250*time.Microsecond<<min(try, 4), 2*time.Millisecond))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		err = f()
	}
	return err
}

func readText(ctx context.Context, on driver.QueryerContext, query string) (text string, err error) {
	rows, err := on.QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	dest := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(dest); err != nil {
		return "", err
	}
	return fmt.Sprint(dest[0]), nil
}
