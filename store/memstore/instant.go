package memstore

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Times are kept as milliseconds since 1970, like in the other stores.
const (
	never = math.MaxInt64
	ever  = math.MinInt64
)

func millis(t time.Time) int64 { return t.UnixMilli() }

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// bound is ms as the time that package lane wants.
func bound(ms int64) time.Time {
	if ms == never {
		return time.Unix(1<<40, 0).UTC()
	}
	return instant(ms)
}

// expiry is the end of a lease that begins at now. A part of a millisecond
// counts as a whole one, so that no lease is shorter than asked.
func expiry(now int64, lease time.Duration) int64 {
	return now + int64((lease+time.Millisecond-1)/time.Millisecond)
}

// alive returns an error when the context has ended.
func alive(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if !errors.Is(cause, ctx.Err()) {
		cause = errors.Join(ctx.Err(), cause)
	}
	return store.NewError(op, store.ErrTimeout, "the context ended first; nothing was changed", cause)
}
