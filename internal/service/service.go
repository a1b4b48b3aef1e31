// Package service gives every goroutine an owner that joins it.
package service

import (
	"context"
	"fmt"
)

// Service is a goroutine that runs until it is stopped. Its methods may be
// called more than once, and on nil.
type Service struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start runs the function in a goroutine. Its context ends when the service is
// cancelled, or with ctx. A function that ends its goroutine with
// runtime.Goexit before that, as user code that it calls may do, is run again.
func Start(ctx context.Context, run func(context.Context)) *Service {
	ctx, cancel := context.WithCancel(ctx)
	s := &Service{cancel: cancel, done: make(chan struct{})}
	go s.run(ctx, run)
	return s
}

func (s *Service) run(ctx context.Context, run func(context.Context)) {
	returned := false
	defer func() {
		if returned || ctx.Err() != nil {
			close(s.done)
			return
		}
		go s.run(ctx, run)
	}()
	run(ctx)
	returned = true
}

// Cancel ends the function's context.
func (s *Service) Cancel() {
	if s != nil {
		s.cancel()
	}
}

// Join waits until the function has returned, or the context ends, which is an
// error.
func (s *Service) Join(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case <-s.done:
		return nil
	default:
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a call does not return: %w", context.Cause(ctx))
	}
}

// Stop is Cancel and Join.
func (s *Service) Stop(ctx context.Context) error {
	s.Cancel()
	return s.Join(ctx)
}
