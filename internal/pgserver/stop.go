package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Mode is how a [Server] stops.
type Mode int

const (
	// Smart waits until the last client has left.
	Smart Mode = iota
	// Fast aborts what runs and disconnects the clients.
	Fast
	// Immediate is a crash: the next start recovers what was committed.
	Immediate
)

// String returns the name by which pg_ctl knows the mode.
func (m Mode) String() string {
	switch m {
	case Smart:
		return "smart"
	case Fast:
		return "fast"
	default:
		return "immediate"
	}
}

func (m Mode) signal() syscall.Signal {
	switch m {
	case Smart:
		return syscall.SIGTERM
	case Fast:
		return syscall.SIGINT
	default:
		return syscall.SIGQUIT
	}
}

// Stop stops the server and waits until its process has ended, or the context. It does nothing when the server does not
// run. A Fast stop goes on after a Smart one was given up.
func (s *Server) Stop(ctx context.Context, mode Mode) error {
	p := s.current()
	if p == nil || !p.running() {
		return nil
	}
	if err := p.stop(ctx, mode.signal()); err != nil {
		return fmt.Errorf("stop postgres in mode %s: %w", mode, err)
	}
	return nil
}

// Kill crashes the server: all of its sessions end at once and nothing is written any more. It is [Server.Stop] with
// [Immediate].
func (s *Server) Kill(ctx context.Context) error { return s.Stop(ctx, Immediate) }

// Restart stops the server in mode [Fast], if it runs, and starts it again on the same port and data. It waits until
// the server accepts connections, for a minute and a half at most.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx, Fast); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("restart postgres: %w", os.ErrClosed)
	}
	if s.process.running() {
		return errors.New("restart postgres: another call has started it")
	}
	return s.start(ctx)
}

// Close stops the server as if it crashed and removes its directory. A second call does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.process != nil {
		if err := s.process.end(Immediate.signal()); err != nil {
			return fmt.Errorf("close postgres: %w", err)
		}
	}
	s.home.remove()
	return nil
}
