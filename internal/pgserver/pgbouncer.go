package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// defaultPoolSize is how many connections to the server a [PgBouncer] has for each database.
const defaultPoolSize = 20

// PgBouncerOptions are how to start a [PgBouncer].
type PgBouncerOptions struct {
	// MaxPreparedStatements is how many prepared statements of clients it keeps track of for each connection. 0, the
	// default, is none: the named statement of one transaction is not there in the next. More needs pgbouncer 1.21; with
	// an older one the start's error is [errors.ErrUnsupported].
	MaxPreparedStatements int
	// PoolSize is how many connections to the server there are for each database, 20 by default.
	PoolSize int
	// Settings are further lines of the section [pgbouncer], which override the ones above.
	Settings map[string]string
}

// PgBouncer is a pgbouncer in transaction mode in front of a server, on a TCP port of the loopback interface. It lets
// every client in and forwards all of them as the user of the server's URL, to the database that they ask for. One older
// than 1.21 is not told of requests to cancel, which can end it.
type PgBouncer struct {
	home    home
	port    int
	process *process
	// shield is in front of a version that does not outlive requests to cancel; nil for others.
	shield *Proxy
}

// StartPgBouncer starts a pgbouncer for the server of the URL, which must accept connections to the URL's database, and
// waits until it does so too. The context bounds the start. The error wraps [exec.ErrNotFound] when pgbouncer is not
// installed, and says what to install.
func StartPgBouncer(ctx context.Context, serverURL string, options PgBouncerOptions) (*PgBouncer, error) {
	program, err := systemSearch().pgbouncer()
	if err != nil {
		return nil, err
	}
	upstream, err := parseURL(serverURL)
	if err != nil {
		return nil, err
	}
	version, err := pgbouncerVersion(ctx, program)
	if err != nil {
		return nil, err
	}
	if options.MaxPreparedStatements > 0 && slices.Compare(version, []int{1, 21}) < 0 {
		return nil, fmt.Errorf("keep track of prepared statements with pgbouncer %d.%d, which needs 1.21: %w",
			version[0], version[1], errors.ErrUnsupported)
	}
	owner, err := programAccount()
	if err != nil {
		return nil, err
	}
	h, err := newHome(owner)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{home: h}
	if err := b.start(ctx, program, owner, upstream, options); err != nil {
		h.remove()
		return nil, err
	}
	if slices.Compare(version, outlivesCancels()) < 0 {
		if b.shield, err = StartProxy(ctx, loopback(b.port)); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.shield.IgnoreCancels()
	}
	return b, nil
}

// outlivesCancels is the version that fixed the last of the crashes by a request to cancel that comes when the statement
// has ended (pull request 927 of pgbouncer). From 1.18 on they end the program, with "server in bad state".
func outlivesCancels() []int { return []int{1, 21} }

// start tries other ports when somebody takes the one that was free.
func (b *PgBouncer) start(
	ctx context.Context, program string, owner *account, upstream *url.URL, options PgBouncerOptions,
) error {
	for try := 1; ; try++ {
		var err error
		if b.port, err = freePort(ctx); err != nil {
			return err
		}
		if err = b.writeConfig(owner, upstream, options); err != nil {
			return err
		}
		if err = b.run(ctx, program, owner, upstream); err == nil {
			return nil
		}
		if try == startTries || !errors.Is(err, errEnded) || tryPort(ctx, b.port) == nil {
			return err
		}
	}
}

func (b *PgBouncer) run(ctx context.Context, program string, owner *account, upstream *url.URL) error {
	log, err := os.Create(b.LogFile())
	if err != nil {
		return fmt.Errorf("make the log of pgbouncer: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, b.configFile())
	cmd.Dir, cmd.Env = b.home.dir, plainEnvironment(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	if b.process, err = launch(cmd, owner, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start pgbouncer: %w", err)
	}
	database := cmp.Or(strings.TrimPrefix(upstream.Path, "/"), roleOf(upstream))
	if err := awaitReady(ctx, b.process, b.Address(), roleOf(upstream), database); err != nil {
		_ = b.process.end(syscall.SIGKILL)
		return fmt.Errorf("start pgbouncer: %w%s", err, tail(b.LogFile()))
	}
	return nil
}

// writeConfig writes the file that holds all of the configuration, and perhaps the server's password.
func (b *PgBouncer) writeConfig(owner *account, upstream *url.URL, options PgBouncerOptions) error {
	settings := map[string]string{
		"listen_addr":       "127.0.0.1",
		"listen_port":       strconv.Itoa(b.port),
		"unix_socket_dir":   "",
		"auth_type":         "any",
		"pool_mode":         "transaction",
		"default_pool_size": strconv.Itoa(defaultPoolSize),
		"max_client_conn":   "1000",
	}
	if options.PoolSize > 0 {
		settings["default_pool_size"] = strconv.Itoa(options.PoolSize)
	}
	if options.MaxPreparedStatements > 0 {
		settings["max_prepared_statements"] = strconv.Itoa(options.MaxPreparedStatements)
	}
	maps.Copy(settings, options.Settings)

	var text strings.Builder
	fmt.Fprintf(&text, "[databases]\n* = %s\n\n[pgbouncer]\n", connectionWords(upstream))
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if strings.ContainsAny(key+settings[key], "\n\r\x00") {
			return fmt.Errorf("the setting %.60q does not fit in a line of pgbouncer's configuration", key)
		}
		fmt.Fprintf(&text, "%s = %s\n", key, settings[key])
	}
	if err := os.WriteFile(b.configFile(), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write pgbouncer's configuration: %w", err)
	}
	if err := owner.give(b.configFile()); err != nil {
		return fmt.Errorf("give pgbouncer its configuration: %w", err)
	}
	return nil
}

// connectionWords says where the server is, in the form of pgbouncer's section [databases].
func connectionWords(upstream *url.URL) string {
	words := []string{
		"host=" + quoteWord(upstream.Hostname()), "port=" + portOf(upstream), "user=" + quoteWord(roleOf(upstream)),
	}
	if password, ok := upstream.User.Password(); ok {
		words = append(words, "password="+quoteWord(password))
	}
	return strings.Join(words, " ")
}

func quoteWord(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (b *PgBouncer) configFile() string { return b.home.file("pgbouncer.ini") }

// LogFile returns the path of its log, which Close removes.
func (b *PgBouncer) LogFile() string { return b.home.file("pgbouncer.log") }

// Address returns the host and the port.
func (b *PgBouncer) Address() string {
	if b.shield != nil {
		return b.shield.Address()
	}
	return loopback(b.port)
}

// URL returns the address of a database through the pgbouncer. The database pgbouncer is its console.
func (b *PgBouncer) URL(database string) string { return localURL(b.Address(), database) }

// Close kills it, which drops the sessions of its clients, and removes its directory. It returns an error with the last
// lines of the log when it had ended by itself. A second call does nothing.
func (b *PgBouncer) Close() error {
	if b.process == nil {
		return nil
	}
	process := b.process
	b.process = nil
	if b.shield != nil {
		_ = b.shield.Close() // It has nothing that can fail.
	}
	if !process.running() {
		err := fmt.Errorf("pgbouncer had ended by itself: %w%s", cmp.Or(process.err, errEnded), tail(b.LogFile()))
		b.home.remove()
		return err
	}
	if err := process.end(syscall.SIGKILL); err != nil {
		return fmt.Errorf("close pgbouncer: %w", err)
	}
	b.home.remove()
	return nil
}
