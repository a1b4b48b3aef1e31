package storetest

import (
	"sync"

	"github.com/relaybus-go/relaybus/store"
)

// History records what a test saw of publishes and executions, and checks that
// nothing was lost, invented, doubled, reordered or run at once. It orders what
// it sees by its own counter, never by a clock. All methods may be called by
// many goroutines at once.
//
// A test calls [History.Publish] before it publishes, and tells the outcome
// afterwards. It calls [History.Start] when a handler starts,
// [Execution.Returned] when it returns, and the method for its result when that
// has been stored. [Execution.Fault] allows an execution that was under way when
// its worker died to be repeated. [History.Check] reports every violation at the
// end.
type History struct {
	mu           sync.Mutex
	clock        int64
	publications map[string]*publication
	order        []string
	executions   []*Execution
	effects      map[DeliveryName]int
	final        map[DeliveryName]store.Status
	violations   []string
}

// DeliveryName names a delivery in a history: the event and the handler that
// it was published for.
type DeliveryName struct{ EventID, Handler string }

type publication struct {
	key          string
	handlers     []string
	began, ended int64
	outcome      outcome
}

type outcome uint8

const (
	unknownOutcome outcome = iota
	committed
	notCommitted
)

// NewHistory returns an empty history.
func NewHistory() *History {
	return &History{
		publications: make(map[string]*publication),
		effects:      make(map[DeliveryName]int),
		final:        make(map[DeliveryName]store.Status),
	}
}

func (h *History) tick() int64 {
	h.clock++
	return h.clock
}

// Publication is one publish of an event. Until one of its methods is called
// its outcome is unknown: the event may be seen, and may never be.
type Publication struct {
	h  *History
	id string
}

// Publish records that an event is about to be published for the handlers. An
// id that was published before gets further handlers.
func (h *History) Publish(eventID, key string, handlers ...string) Publication {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.publications[eventID]
	if p == nil {
		p = &publication{key: key, began: h.tick()}
		h.publications[eventID] = p
		h.order = append(h.order, eventID)
	}
	p.handlers = append(p.handlers, handlers...)
	return Publication{h: h, id: eventID}
}

// Committed records that the publish is known to have been committed.
func (p Publication) Committed() { p.end(committed) }

// RolledBack records that the publish is known not to have been committed.
func (p Publication) RolledBack() { p.end(notCommitted) }

func (p Publication) end(o outcome) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	publication := p.h.publications[p.id]
	if publication.outcome == committed {
		return
	}
	publication.outcome, publication.ended = o, p.h.tick()
}

// Execution is one run of a handler.
type Execution struct {
	h        *History
	delivery DeliveryName
	key      string
	sequence int64
	attempt  int
	began    int64
	ended    int64 // 0 while it runs
	result   result
	fault    bool
}

type result uint8

const (
	unfinished result = iota
	succeeded
	failed
	died
	refused
)

// Start records that a handler starts with a delivery. attempt counts from 1.
func (h *History) Start(e store.Event, handler string, attempt int) *Execution {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := &Execution{
		h: h, delivery: DeliveryName{e.ID, handler}, key: e.Key, sequence: e.Sequence, attempt: attempt, began: h.tick(),
	}
	h.executions = append(h.executions, x)
	return x
}

// Returned records that the handler has returned, before its result is stored:
// once it is stored, others may start. The methods for results imply it.
func (x *Execution) Returned() {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	if x.ended == 0 {
		x.ended = x.h.tick()
	}
}

// Completed records that the completion was stored.
func (x *Execution) Completed() { x.end(succeeded) }

// Failed records that the store knows that the execution has not completed the
// delivery: it was rescheduled or released.
func (x *Execution) Failed() { x.end(failed) }

// Buried records that the delivery has been given up.
func (x *Execution) Buried() { x.end(died) }

// Refused records that the result was refused because the lease was lost. The
// delivery then belongs to somebody else, so its executions may overlap.
func (x *Execution) Refused() {
	x.end(refused)
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	x.fault = true
}

func (x *Execution) end(r result) {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	if x.result != unfinished {
		x.h.violations = append(x.h.violations, "an execution of "+x.delivery.EventID+" ended twice in the history")
		return
	}
	if x.ended == 0 {
		x.ended = x.h.tick()
	}
	x.result = r
}

// Fault records that the worker of the execution died or stalled: the delivery
// may run again, and beside this one.
func (x *Execution) Fault() {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	x.fault = true
}

// Effect records a committed effect of a transactional handler. There must be
// exactly one for each delivery that has any.
func (h *History) Effect(eventID, handler string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.effects[DeliveryName{eventID, handler}]++
}

// Final records where a delivery is at the end, as the store tells it. Those
// that no store lists any more are completed, and need no call.
func (h *History) Final(eventID, handler string, status store.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.final[DeliveryName{eventID, handler}] = status
}

// Executions returns how many executions started.
func (h *History) Executions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.executions)
}
