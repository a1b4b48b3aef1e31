package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Synchronous is how hard a commit is pressed onto the disk.
type Synchronous uint8

const (
	// Full survives a power cut: a commit returns when the disk has it.
	Full Synchronous = iota
	// Normal survives a crash of the process, but a power cut or a crash of the
	// operating system may undo the last commits, all writes of a transaction
	// together. The file is never damaged by it. It saves one fsync a commit.
	Normal
)

// Defaults of [Config].
const (
	// DefaultPrefix begins the names of the store's tables and indexes.
	DefaultPrefix = "relaybus_"
	// DefaultBusyTimeout is how long contention is waited for.
	DefaultBusyTimeout = 10 * time.Second
	// DefaultReaders is the number of read connections.
	DefaultReaders = 4
	// DefaultWakeInterval is how often the file is looked at for commits of
	// other processes.
	DefaultWakeInterval = 5 * time.Millisecond
)

// Limits of [Config].
const (
	maxPrefix  = 40
	maxReaders = 1000
	// SQLite counts milliseconds with 32 bits.
	maxBusyTimeout = 24 * time.Hour
)

// Config has the options of a store. The zero value works.
type Config struct {
	// History keeps completed deliveries, so that they can be listed and
	// counted until they are purged. Default false: they are deleted. All
	// processes that share a file should agree.
	History bool
	// Synchronous is the durability of a commit. Default [Full].
	Synchronous Synchronous
	// BusyTimeout is how long a step waits for another process, or for another
	// transaction of this one, before it fails with [store.ErrUnavailable].
	// Default [DefaultBusyTimeout]; at least 1 ms, at most 24 hours.
	BusyTimeout time.Duration
	// Prefix begins the names of the store's tables and indexes: up to 40
	// letters, digits and underscores, a letter first. Stores with different
	// prefixes can share a file. Default [DefaultPrefix].
	Prefix string
	// Readers is the number of connections that read. Default
	// [DefaultReaders], at most 1000.
	Readers int
	// WakeInterval is how often [Store.Wake] looks for commits of other
	// processes. Default [DefaultWakeInterval]; at least 1 ms.
	WakeInterval time.Duration
}

func (c Config) withDefaults() Config {
	if c.BusyTimeout == 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Readers == 0 {
		c.Readers = DefaultReaders
	}
	if c.WakeInterval == 0 {
		c.WakeInterval = DefaultWakeInterval
	}
	return c
}

// validate returns everything that is wrong with the options at once.
func (c Config) validate() error {
	var problems []error
	if c.Synchronous > Normal {
		problems = append(problems, fmt.Errorf("field Synchronous: %d is neither Full nor Normal", c.Synchronous))
	}
	if c.BusyTimeout < time.Millisecond || c.BusyTimeout > maxBusyTimeout {
		problems = append(problems, fmt.Errorf("field BusyTimeout: %v is not between 1ms and %v", c.BusyTimeout, maxBusyTimeout))
	}
	if c.WakeInterval < time.Millisecond {
		problems = append(problems, fmt.Errorf("field WakeInterval: %v is shorter than 1ms", c.WakeInterval))
	}
	if c.Readers < 1 || c.Readers > maxReaders {
		problems = append(problems, fmt.Errorf("field Readers: %d is not between 1 and %d", c.Readers, maxReaders))
	}
	if ok, err := regexp.MatchString(`^[A-Za-z][A-Za-z0-9_]*$`, c.Prefix); !ok || err != nil || len(c.Prefix) > maxPrefix {
		problems = append(problems, fmt.Errorf(
			"field Prefix: not up to %d letters, digits and underscores with a letter first", maxPrefix))
	}
	return errors.Join(problems...)
}

// location makes the path absolute, so that a later change of the working
// directory leads nowhere else.
func location(path string) (string, error) {
	switch path {
	case "":
		return "", errors.New("the path is empty")
	case ":memory:":
		return "", errors.New("a database in memory can't be shared by connections; use a file in a temporary directory")
	}
	for i := range len(path) {
		if path[i] == 0 {
			return "", errors.New("the path holds a NUL")
		}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("make the path absolute: %w", err)
	}
	if runtime.GOOS == "windows" {
		absolute = "/" + filepath.ToSlash(absolute)
	}
	return absolute, nil
}

func configurationError(op string, cause error) error {
	return store.NewError(op, store.ErrConfiguration, "", cause)
}
