package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// superuser is the role and the database that every new server has.
const superuser = "postgres"

// startTries is how many ports a new server tries when others take them first.
const startTries = 5

// Options are how to start a [Server]. The zero value is a server as users run it.
type Options struct {
	// Settings go into postgresql.conf: "fsync" is "on" and "max_connections" "200" unless they say otherwise. The
	// port, listen_addresses and unix_socket_directories are the server's own business.
	Settings map[string]string
}

// Server is a PostgreSQL server in a private directory, on a TCP port of the loopback interface. Its one role is the
// superuser postgres, who needs no password; its encoding is UTF8, its locale C. The methods may be called from several
// goroutines, and a call that stops the server also ends another's wait for its clients to leave.
type Server struct {
	programs string
	account  *account
	home     home
	port     int

	mu      sync.Mutex
	closed  bool
	process *process // the last one, nil before the first start
}

// Start makes a new server and waits until it accepts connections, for a minute and a half at most. The context bounds
// the start, not the server's life, which ends with Close. The error wraps [exec.ErrNotFound] when PostgreSQL is not
// installed, and says what to install.
func Start(ctx context.Context, options Options) (*Server, error) {
	programs, err := systemSearch().postgres(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := programAccount()
	if err != nil {
		return nil, err
	}
	h, err := newHome(owner)
	if err != nil {
		return nil, err
	}
	s := &Server{programs: programs, account: owner, home: h}
	if err := s.create(ctx, options); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// create initialises the directory and finds a port on which the server starts.
func (s *Server) create(ctx context.Context, options Options) error {
	if err := s.initialise(ctx); err != nil {
		return err
	}
	if err := writeSettings(s.home.file("data/postgresql.conf"), options.Settings); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for try := 1; ; try++ {
		var err error
		if s.port, err = freePort(ctx); err != nil {
			return err
		}
		if err = s.start(ctx); err == nil {
			return nil
		}
		// A port that we can't have either was taken by somebody else since.
		if try == startTries || !errors.Is(err, errEnded) || tryPort(ctx, s.port) == nil {
			return err
		}
	}
}

// initialise runs initdb.
func (s *Server) initialise(ctx context.Context) error {
	cmd := s.command(ctx, "initdb", "--pgdata="+s.home.file("data"), "--username="+superuser, "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	output, err := os.Create(s.home.file("initdb.log"))
	if err != nil {
		return fmt.Errorf("make the log of initdb: %w", err)
	}
	defer func() { _ = output.Close() }()
	cmd.Stdout, cmd.Stderr = output, output
	p, err := launch(cmd, s.account, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("run initdb: %w", err)
	}
	if <-p.ended; p.err != nil {
		return fmt.Errorf("run initdb: %w%s", p.err, tail(output.Name()))
	}
	return nil
}

// start runs the server on its port and waits until it accepts connections. The caller holds the mutex.
func (s *Server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := s.command(context.WithoutCancel(ctx), "postgres", "-D", s.home.file("data"), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd, s.account, Immediate.signal())
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	s.process = p
	if err := awaitReady(ctx, p, s.Address(), superuser, superuser); err != nil {
		_ = p.end(Immediate.signal())
		return fmt.Errorf("start postgres: %w%s", err, tail(s.LogFile()))
	}
	return nil
}

// command is one of PostgreSQL's programs, with an environment that has nothing of the developer's own settings.
func (s *Server) command(ctx context.Context, program string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.programs, program), arguments...)
	cmd.Dir = s.home.dir
	cmd.Env = plainEnvironment(os.Environ())
	return cmd
}

// Port returns the TCP port, which a restart does not change.
func (s *Server) Port() int { return s.port }

// Address returns the host and the port.
func (s *Server) Address() string { return loopback(s.port) }

// URL returns the address of the database for a driver. The database postgres exists from the start.
func (s *Server) URL(database string) string { return localURL(s.Address(), database) }

// LogFile returns the path of the server's log, which Close removes.
func (s *Server) LogFile() string { return s.home.file("server.log") }

// Programs returns the directory of PostgreSQL's programs.
func (s *Server) Programs() string { return s.programs }

// Running tells if the server's process has not ended.
func (s *Server) Running() bool {
	p := s.current()
	return p != nil && p.running()
}

// current returns the last process, which may have ended.
func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}
