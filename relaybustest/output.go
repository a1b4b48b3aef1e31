package relaybustest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/relaybus-go/relaybus"
)

// output writes to the log of a test until the test has ended: a line after
// that would be a panic.
type output struct {
	tb    testing.TB
	mu    sync.Mutex
	ended bool
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return len(p), nil
	}
	return o.tb.Output().Write(p)
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
}

// logHandler gives log lines the time of the bus's clock.
type logHandler struct {
	slog.Handler
	clock relaybus.Clock
}

func newLogHandler(out *output, clock relaybus.Clock) slog.Handler {
	return logHandler{slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}), clock}
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Time = h.clock.Now()
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs), h.clock}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name), h.clock}
}
