package dispatch

import (
	"context"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// job is one claimed delivery, from its claim until its claim has ended.
type job struct {
	h *handlerState
	c store.Claimed

	// The rest is guarded by the engine's mutex.

	state jobState
	// since is when it was claimed.
	since time.Time
	// leaseUntil is when the lease ends unless it is renewed.
	leaseUntil time.Time
	started    time.Time
	ctx        context.Context //nolint:containedctx // it is the context of this job's handler alone
	cancel     context.CancelCauseFunc
	// inTx: a transactional handler is at work, so its lease is not renewed.
	inTx bool
	// committing: the transactional handler has returned, and its transaction
	// is being completed.
	committing bool
	// lost: the store has said that the lease is lost. A lease that could not be
	// renewed in time may still hold: the owner's next claim keeps alive what
	// nobody took over, so it must be given back.
	lost bool
	// abandoned: its claim has ended or is ending, but its handler still runs.
	abandoned bool
	// stopGrace stops the timer that abandons the job.
	stopGrace func() bool
	// done is closed when the claim has ended.
	done chan struct{}
}

type jobState uint8

const (
	jobQueued   jobState = iota + 1
	jobRunning           // its handler runs
	jobSettling          // the outcome is decided, the store has not confirmed it
	jobDone
)

// key is what a job occupies in this process besides its slot.
type key struct {
	h       *handlerState
	eventID string
	key     string
}

// keys returns the delivery and, for a keyed one, its ordering key.
func (j *job) keys() []key {
	keys := []key{{h: j.h, eventID: j.c.Event.ID}}
	if j.c.Event.Key != "" {
		keys = append(keys, key{h: j.h, key: j.c.Event.Key})
	}
	return keys
}

// handlerState is a handler and what the engine knows of it.
type handlerState struct {
	*Handler
	// aliases are its further ids, which can change; those in Handler are the
	// first ones.
	aliases []string
	running int
	queue   []*job
	// maybe: it may have due work. signals counts what says so.
	maybe   bool
	signals uint64
	// nextDue is when more work is known to become due.
	nextDue time.Time
	// pausedUntil holds claims back while something it needs is down; outages
	// counts the probes that failed in a row.
	pausedUntil time.Time
	pausedFor   time.Duration
	outages     int
	// sheds counts the calls of Shed.
	sheds uint64
	rate  bucket
	pace  pace
}

// dueAt notes when further work becomes due.
func (h *handlerState) dueAt(t time.Time) {
	if h.nextDue.IsZero() || t.Before(h.nextDue) {
		h.nextDue = t
	}
}

// signal says that the handler may have due work, also when a claim is under way
// that began before this.
func (h *handlerState) signal() {
	h.maybe = true
	h.signals++
}

// paused reports whether claims are held back. A clock that was set back makes
// no pause longer than it was meant to be.
func (h *handlerState) paused(now time.Time) bool {
	if h.pausedUntil.Sub(now) > h.pausedFor {
		h.pausedUntil = now.Add(h.pausedFor)
	}
	return now.Before(h.pausedUntil)
}

// ask is a handler that a claim asks for, and its signals and sheds by then.
type ask struct {
	h              *handlerState
	signals, sheds uint64
}

func newAsk(h *handlerState) ask { return ask{h: h, signals: h.signals, sheds: h.sheds} }

// pace measures how many deliveries a handler finished lately, which is how
// many are worth claiming ahead.
type pace struct {
	began     time.Time
	now, last int
}

// paceWindow is the time that claiming ahead is to bridge.
const paceWindow = 50 * time.Millisecond

func (p *pace) finished(now time.Time) {
	if age := now.Sub(p.began); age > paceWindow || age < 0 {
		p.last = p.now
		if age > 2*paceWindow {
			p.last = 0
		}
		p.began, p.now = now, 0
	}
	p.now++
}

func (p *pace) ahead(now time.Time) int {
	if age := now.Sub(p.began); age > 2*paceWindow || age < 0 {
		return 0
	}
	return max(p.now, p.last)
}
