package memstore

import (
	"cmp"
	"strings"
	"sync"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// database is what the instances share. Each method that changes it leaves all
// indexes consistent, and is called with the mutex held.
type database struct {
	mu sync.Mutex

	position int64
	events   map[string]*event
	log      *sorted[*event]    // by position
	dead     *sorted[*delivery] // those that hold no key, by time of death
	history  *sorted[*completion]
	// retained has the events without a delivery, by the time from which their
	// retention counts.
	retained *sorted[*event]

	number   int64
	handlers map[string]*handler

	sliceNumber int64
	ownerNumber int64
	owners      map[int64]*owner
	running     map[*delivery]*owner

	// changes counts what may have made a delivery claimable.
	changes uint64
	wakers  map[chan struct{}]struct{}
}

func newDatabase() *database {
	return &database{
		events: make(map[string]*event),
		log:    newSorted(func(a, b *event) int { return cmp.Compare(a.position, b.position) }),
		dead: newSorted(func(a, b *delivery) int {
			return cmp.Or(cmp.Compare(a.died, b.died), cmp.Compare(a.number, b.number))
		}),
		history: newSorted(func(a, b *completion) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number))
		}),
		retained: newSorted(func(a, b *event) int {
			return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.position, b.position))
		}),
		handlers: make(map[string]*handler),
		owners:   make(map[int64]*owner),
		running:  make(map[*delivery]*owner),
		wakers:   make(map[chan struct{}]struct{}),
	}
}

// event is a stored event. data never changes; the other fields belong to the
// database.
type event struct {
	data     store.Event
	position int64
	created  int64
	// had names every handler that ever had a delivery of it.
	had        map[string]struct{}
	deliveries []*delivery // unfinished or dead, by handler
	history    []*completion
	completed  int64 // the last completion, or ever
	retained   bool
	since      int64
}

type state uint8

const (
	pending state = iota + 1
	parked
	dead
)

// delivery is a delivery that is not completed. That it runs is not its state:
// an owner lists it.
type delivery struct {
	number   int64
	event    *event
	handler  *handler
	slice    *slice
	state    state
	hold     bool
	alone    bool
	due      int64
	claims   int64
	attempts int
	lost     int
	updated  int64
	died     int64
	failure  string
}

func (d *delivery) key() string { return d.event.data.Key }

func (d *delivery) id() store.DeliveryID {
	return store.DeliveryID{EventID: d.event.data.ID, Handler: d.handler.id}
}

func (d *delivery) sequence() int64 { return d.event.data.Sequence }

// unfinished says that it blocks the later ones of its key.
func (d *delivery) unfinished() bool { return d.state != dead || d.hold }

// completion is a completed delivery that is kept as history.
type completion struct {
	number   int64
	event    *event
	handler  string
	attempts int
	lost     int
	due      int64
	at       int64
	failure  string
}

// handler has the deliveries that are stored under one id, and its entry in
// the catalogue.
type handler struct {
	id         string
	slices     [lane.Count]*slice
	keys       map[string]*sorted[*delivery] // the unfinished ones of each key, by sequence
	busy       map[string]int                // how many of each key run
	deliveries *sorted[*delivery]            // by number

	recorded bool
	types    []string
	aliases  []string
	at       int64
	paused   bool
	retired  bool
}

// slice is one lane of a handler: what workers lease.
type slice struct {
	number  int64
	handler *handler
	lane    uint8
	ready   *sorted[*delivery] // by due time
	owner   *owner
	epoch   int64
	// edits counts the changes that operators made to deliveries that wait
	// here. A claim is recorded only if there was none since it read.
	edits int64
}

func byNumber(a, b *delivery) int { return cmp.Compare(a.number, b.number) }

func byDue(a, b *delivery) int { return cmp.Or(cmp.Compare(a.due, b.due), byNumber(a, b)) }

func bySequence(a, b *delivery) int {
	return cmp.Or(cmp.Compare(a.sequence(), b.sequence()), byNumber(a, b))
}

func byHandler(a *delivery, id string) int { return strings.Compare(a.handler.id, id) }

// handler returns the handler of an id, which it makes when it is new.
func (db *database) handler(id string) *handler {
	h := db.handlers[id]
	if h == nil {
		h = &handler{
			id:         id,
			keys:       make(map[string]*sorted[*delivery]),
			busy:       make(map[string]int),
			deliveries: newSorted(byNumber),
		}
		db.handlers[id] = h
	}
	return h
}

// slice returns a lane of a handler, which it makes when it is new.
func (db *database) slice(h *handler, number uint8) *slice {
	if h.slices[number] == nil {
		db.sliceNumber++
		h.slices[number] = &slice{number: db.sliceNumber, handler: h, lane: number, ready: newSorted(byDue)}
	}
	return h.slices[number]
}

// known says that the handler is in the catalogue: it was recorded, or has
// deliveries.
func (h *handler) known() bool { return h.recorded || h.deliveries.len() > 0 }
