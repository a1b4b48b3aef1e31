package postgres

import (
	"context"
	"sync"
	"time"
)

// notifier tells other processes, off the way of commits, that there is something
// new: a transaction that notifies makes those that do so, too, commit one at a
// time.
type notifier struct {
	s *Store
	// published is signalled by a commit of this instance, joined by a publish in a
	// transaction of which nobody tells when it commits.
	published, joined chan struct{}

	mu      sync.Mutex
	cancel  context.CancelFunc // nil while it does not run
	stopped bool
	done    chan struct{}
}

// notifyPause is the least time between two notifications: they are coalesced.
const notifyPause = 5 * time.Millisecond

// afterJoined are the times after a joined publish at which it may have been
// committed.
func afterJoined() []time.Duration {
	return []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond, 320 * time.Millisecond}
}

func newNotifier(s *Store) *notifier {
	return &notifier{s: s, published: make(chan struct{}, 1), joined: make(chan struct{}, 1), done: make(chan struct{})}
}

// tell begins to notify with the first publish, so that a store that never
// publishes has no goroutine for it.
func (n *notifier) tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cancel != nil || n.stopped {
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // It outlives every call, and ends with Close.
	n.cancel = cancel
	go n.run(ctx)
}

// stop ends it and waits for its end.
func (n *notifier) stop() {
	n.mu.Lock()
	n.stopped = true
	cancel := n.cancel
	n.mu.Unlock()
	if cancel != nil {
		cancel()
		<-n.done
	}
}

func (n *notifier) run(ctx context.Context) {
	defer close(n.done)
	var due []time.Time // when to notify because of joined publishes
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if len(due) > 0 {
			timer.Reset(time.Until(due[0]))
		}
		select {
		case <-ctx.Done():
			return
		case <-n.published:
		case <-n.joined:
			due = again(due, time.Now())
			continue
		case <-timer.C:
			if len(due) == 0 {
				timer.Reset(time.Hour)
				continue
			}
			due = due[1:]
			if len(due) == 0 {
				timer.Reset(time.Hour)
			}
		}
		n.send(ctx)
		pause := time.NewTimer(notifyPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// again returns when to notify after one more joined publish. A time that comes
// earlier stays, so that publishes in a row don't put it off for ever.
func again(due []time.Time, now time.Time) []time.Time {
	var times []time.Time
	for _, after := range afterJoined() {
		times = append(times, now.Add(after))
	}
	if len(due) > 0 && due[0].Before(times[0]) {
		return append(due[:1], times...)
	}
	return times
}

// send notifies. Polling stands in for a notification that fails.
func (n *notifier) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := n.s.own.Exec(ctx, `SELECT pg_notify($1, $2)`, n.s.channel(), n.s.instance); err != nil && ctx.Err() == nil {
		n.s.cfg.Logger.DebugContext(ctx, "relaybus: notify other processes", "error", err)
	}
}
