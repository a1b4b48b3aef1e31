package dispatch

import "time"

// nudgeAfter are the delays of the quick polls after a publish whose commit
// the bus can't see. The idle poll comes after them.
var nudgeAfter = [...]time.Duration{ //nolint:gochecknoglobals // a constant table
	5 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond, 320 * time.Millisecond,
}

// nudges is a running series of quick polls.
type nudges struct {
	step int
	stop func() bool
	off  bool
	// series tells a poll whose timer could not be stopped that another series
	// has begun.
	series uint64
}

// Nudge says that a transaction which others will commit may make something
// due soon. A series that is under way starts again.
func (e *Engine) Nudge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fetch == nil || e.nudges.off {
		return
	}
	if e.nudges.stop != nil {
		if e.nudges.step == 0 {
			return // its first poll is still to come
		}
		e.nudges.stop()
	}
	e.nudges.step = 0
	e.nudges.series++
	e.nudgeNext()
}

func (e *Engine) nudgeNext() {
	series := e.nudges.series
	e.nudges.stop = e.cfg.Clock.AfterFunc(nudgeAfter[e.nudges.step], func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.nudges.off || e.nudges.series != series {
			return
		}
		e.wakeLocked()
		if e.nudges.step++; e.nudges.step == len(nudgeAfter) {
			e.nudges.step, e.nudges.stop = 0, nil
			return
		}
		e.nudgeNext()
	})
}

func (e *Engine) stopNudges() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nudges.off = true
	if e.nudges.stop != nil {
		e.nudges.stop()
	}
}
