package service_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/internal/service"
)

func TestService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := service.Start(t.Context(), func(ctx context.Context) { <-ctx.Done() })
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop again: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Join(ended); err != nil {
			t.Errorf("Join of one that has ended: %v", err)
		}
	})
}

func TestServiceThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := service.Start(t.Context(), func(context.Context) { <-release })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop: %v", err)
		}
		close(release)
		if err := s.Join(t.Context()); err != nil {
			t.Errorf("Join: %v", err)
		}
	})
}

func TestNoService(t *testing.T) {
	t.Parallel()
	var s *service.Service
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestServiceSurvivesGoexit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		s := service.Start(t.Context(), func(ctx context.Context) {
			if runs++; runs < 3 {
				runtime.Goexit()
			}
			<-ctx.Done()
		})
		synctest.Wait()
		if err := s.Stop(t.Context()); err != nil || runs != 3 {
			t.Errorf("%d runs, want 3; Stop: %v", runs, err)
		}
	})
}
