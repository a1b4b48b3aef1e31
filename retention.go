package relaybus

import (
	"context"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// PurgeExpired deletes what has outlived its retention, in batches, until
// nothing is left to delete. The bus does it by itself every
// Config.Retention.Interval while it is started.
func (b *Bus) PurgeExpired(ctx context.Context) (Purged, error) {
	if err := b.usable("purge"); err != nil {
		return Purged{}, err
	}
	began := b.cfg.Clock.Now()
	request := store.PurgeRequest{Limit: b.cfg.Retention.BatchSize}
	if d := b.cfg.Retention.Completed; d != Never {
		request.CompletedBefore = began.Add(-d)
	}
	if d := b.cfg.Retention.Dead; d != Never {
		request.DeadBefore = began.Add(-d)
	}
	var p Purged
	for p.Err == nil {
		result, err := b.store.Purge(ctx, request)
		p.Events += result.Events
		p.Deliveries += result.Deliveries
		p.History += result.History
		p.Err = err
		if !result.More {
			break
		}
	}
	p.Took = b.cfg.Clock.Now().Sub(began)
	each(&b.hooks, func(h HookPurged) { h.OnPurged(p) })
	if p.Err != nil {
		return p, fmt.Errorf("purge: %w", p.Err)
	}
	return p, nil
}

// retentionLoop purges for as long as the bus runs. Processes that share a
// database don't all begin at the same moment.
func (b *Bus) retentionLoop(ctx context.Context) {
	interval := b.cfg.Retention.Interval
	wait := time.Duration(b.cfg.Random() * float64(interval))
	for b.sleep(ctx, max(wait, time.Millisecond)) {
		if _, err := b.PurgeExpired(ctx); err != nil && ctx.Err() == nil {
			b.cfg.Logger.WarnContext(ctx, "relaybus: retention failed", "error", err)
		}
		wait = interval
	}
}
