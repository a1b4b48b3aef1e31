package pgserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
)

// URLVariable is the environment variable with the URL of a server that runs already, for [Cluster].
const URLVariable = "RELAYBUS_POSTGRES_URL"

// Cluster is the server that the tests of one process share. It starts at the first use, so that a run of other tests
// does not wait for it. When the environment has [URLVariable], that server is used and nothing is started: set it for
// the child processes of a test, so that they use the server of their parent.
//
// Go has no other way from TestMain to the tests than a variable of the test package:
//
//	var cluster pgserver.Cluster
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }
type Cluster struct {
	// Options are for a server that the cluster starts. They must not change after the first use.
	Options Options

	mu     sync.Mutex
	closed bool
	url    string
	server *Server
	err    error
}

// URL returns the address of a database on the server, which it starts if need be. The database postgres exists on a
// server of our own; the caller makes others, by the name from [NewDatabaseName].
func (c *Cluster) URL(ctx context.Context, database string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(ctx); err != nil {
		return "", err
	}
	return withDatabase(c.url, database)
}

// AdminURL returns the address of the database from which others are made and dropped: postgres, or the one in
// [URLVariable]. It starts the server if need be.
func (c *Cluster) AdminURL(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(ctx); err != nil {
		return "", err
	}
	return c.url, nil
}

// open starts the server unless that has been tried. The caller holds the mutex.
func (c *Cluster) open(ctx context.Context) error {
	switch {
	case c.closed:
		return fmt.Errorf("use the shared server: %w", os.ErrClosed)
	case c.url != "" || c.err != nil:
		return c.err
	}
	if given := os.Getenv(URLVariable); given != "" {
		if _, err := parseURL(given); err != nil {
			c.err = fmt.Errorf("read %s: %w", URLVariable, err)
			return c.err
		}
		c.url = given
		return nil
	}
	server, err := Start(ctx, c.Options)
	if err != nil {
		err = fmt.Errorf("start the shared server: %w", err)
		if ctx.Err() == nil { // else it was this test's own fault, and the next one may try
			c.err = err
		}
		return err
	}
	c.server, c.url = server, server.URL(superuser)
	return nil
}

// Close ends the server if it was started here.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.server == nil {
		return nil
	}
	return c.server.Close()
}

// Run runs the tests, closes the cluster and returns the code for [os.Exit]. Its argument is TestMain's *testing.M.
func (c *Cluster) Run(tests interface{ Run() int }) int {
	code := tests.Run()
	if err := c.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "close the shared server:", err)
		return max(code, 1)
	}
	return code
}

// NewDatabaseName returns a name that no other test, process or run uses. It needs no quotes in SQL.
func NewDatabaseName() string { return "relaybus_" + strings.ToLower(rand.Text()) }
