package postgres

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/relaybus-go/relaybus/store"
)

// Defaults of [Config].
const (
	// DefaultSchema is where the store's tables are.
	DefaultSchema = "public"
	// DefaultPrefix begins the names of the store's tables and indexes.
	DefaultPrefix = "relaybus_"
	// DefaultConnections is how many connections the store makes for itself.
	DefaultConnections = 4
	// DefaultSetupLockTimeout is how long Setup waits for a lock.
	DefaultSetupLockTimeout = 10 * time.Second
)

// PostgreSQL cuts names off after 63 bytes, without an error.
const (
	maxName   = 63
	maxPrefix = 40
)

// Config has the options of a store. The zero value works.
type Config struct {
	// Schema has the store's tables. Setup creates it unless it exists, and a role
	// that may not do that needs the rights that the package's documentation lists.
	// Any name of up to 63 bytes will do, it is quoted; names that begin with "pg_"
	// are the server's own. Default [DefaultSchema].
	Schema string
	// Prefix begins the names of the store's tables and indexes, up to 40 bytes.
	// Stores with different prefixes can share a schema. Default [DefaultPrefix].
	Prefix string
	// History keeps completed deliveries, so that they can be listed and counted
	// until they are purged. Default false: they are deleted. All processes that
	// share a database should agree.
	History bool
	// Connections is how many connections the store makes for itself at most, beside
	// those of the pool and one that listens. Listings, statistics, changes by
	// operators and purges use up to half of them, so that slow ones don't keep
	// claims, completions and renewals waiting; with 1 they may. Default
	// [DefaultConnections].
	Connections int32
	// SQL, when set, is where the transactions are opened that the bus opens:
	// for Bus.Transaction and transactional handlers of services that work with
	// database/sql (GORM, ent, bun, sqlx). It must lead to the same database as
	// the pool, through a driver for PostgreSQL. [SQLTxFrom] then finds them, and
	// [TxFrom] does not. What a role or the database sets for transactions (read
	// only, timeouts, synchronous_commit) is undone in each, which is a round trip.
	// A commit that has begun outlives its context by a second at most; then its
	// outcome is unknown ([store.ErrOutcomeUnknown]), even if the server has rolled
	// it back. Default: they are opened on the pool.
	SQL *sql.DB
	// NotifyInTransaction adds a notification to each transaction that publishes,
	// so that other processes also wake up at once after a commit that the bus
	// did not make itself. PostgreSQL lets transactions that notify commit one at
	// a time, which costs a busy publisher a good part of its rate. Default false:
	// such commits are signalled a few milliseconds later, or found by polling.
	NotifyInTransaction bool
	// SetupLockTimeout is how long Setup waits for a lock, such as that of another
	// Setup or of a long transaction on a table that is to be changed. Default
	// [DefaultSetupLockTimeout]; from 1 ms to 24 days (2^31-1 ms).
	SetupLockTimeout time.Duration
	// Logger gets what an operator should know, such as a pooler that swallows
	// notifications. Default [slog.Default].
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Connections == 0 {
		c.Connections = DefaultConnections
	}
	if c.SetupLockTimeout == 0 {
		c.SetupLockTimeout = DefaultSetupLockTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// validate returns everything that is wrong with the options at once.
func (c Config) validate() error {
	var problems []error
	for _, name := range []struct {
		field, text string
		most        int
	}{{"Schema", c.Schema, maxName}, {"Prefix", c.Prefix, maxPrefix}} {
		if len(name.text) > name.most || !utf8.ValidString(name.text) || strings.ContainsRune(name.text, 0) {
			problems = append(problems, fmt.Errorf("field %s: not up to %d bytes of UTF-8 without NUL", name.field, name.most))
		}
	}
	if c.Connections < 1 || c.Connections > 1000 {
		problems = append(problems, fmt.Errorf("field Connections: %d is not between 1 and 1000", c.Connections))
	}
	if c.SetupLockTimeout < time.Millisecond || c.SetupLockTimeout.Milliseconds() > math.MaxInt32 {
		problems = append(problems, fmt.Errorf("field SetupLockTimeout: %v is not between 1ms and 2^31-1 ms", c.SetupLockTimeout))
	}
	return errors.Join(problems...)
}

// quote makes a name an identifier of SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// named puts the names of tables into SQL text: {t:events} is the table events
// of the store, and {n:x} a name of an index or so, without the schema.
func (c Config) named(text string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '{')
		if i < 0 || i+2 >= len(text) || text[i+2] != ':' {
			if i < 0 {
				b.WriteString(text)
				return b.String()
			}
			b.WriteString(text[:i+1])
			text = text[i+1:]
			continue
		}
		end := strings.IndexByte(text[i:], '}') + i
		b.WriteString(text[:i])
		if text[i+1] == 't' {
			b.WriteString(quote(c.Schema) + ".")
		}
		b.WriteString(quote(c.Prefix + text[i+3:end]))
		text = text[end+1:]
	}
}

func configurationError(op string, cause error) error {
	return store.NewError(op, store.ErrConfiguration, "", cause)
}
