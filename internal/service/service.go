// Package service gives every goroutine an owner that joins it.
package service

import "context"

// Service is a goroutine that runs until it is stopped.
type Service struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start runs the function in a goroutine. Its context ends when the service is
// stopped, or with ctx.
func Start(ctx context.Context, run func(context.Context)) *Service {
	ctx, cancel := context.WithCancel(ctx)
	s := &Service{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		run(ctx)
	}()
	return s
}

// Stop ends the function's context and waits until it has returned. It may be
// called more than once, and on nil.
func (s *Service) Stop() {
	if s == nil {
		return
	}
	s.cancel()
	<-s.done
}
