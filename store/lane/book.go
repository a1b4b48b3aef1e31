package lane

// Book is what one owner knows of the deliveries that it claimed. D identifies
// a delivery, H its handler (all aliases as one). It is not safe for
// concurrent use.
//
// A claim that reads the database while a completion of the same owner is under
// way may see a delivery that the completion is just deleting. So what a claim
// leaves out is what ran when its reading began, not only what still runs when
// it picks: a [Reading] keeps that.
type Book[D, H comparable] struct {
	running map[D]entry[H]
	keys    map[HandlerKey[H]]int
	// ended has the deliveries that ended while a reading was open.
	ended    map[D]uint64
	readings map[uint64]bool
	clock    uint64
}

type entry[H comparable] struct {
	token Token
	key   HandlerKey[H]
}

// NewBook returns an empty book.
func NewBook[D, H comparable]() *Book[D, H] {
	return &Book[D, H]{
		running:  make(map[D]entry[H]),
		keys:     make(map[HandlerKey[H]]int),
		ended:    make(map[D]uint64),
		readings: make(map[uint64]bool),
	}
}

// Reading is one reading of the database by a claim.
type Reading struct{ began uint64 }

// Begin opens a reading. It must be called before the database is asked, and
// [Book.End] when the claim has been recorded or given up.
func (b *Book[D, H]) Begin() Reading {
	b.clock++
	b.readings[b.clock] = true
	return Reading{began: b.clock}
}

// End closes a reading.
func (b *Book[D, H]) End(r Reading) {
	delete(b.readings, r.began)
	if len(b.readings) == 0 {
		clear(b.ended)
		return
	}
	oldest := b.clock
	for began := range b.readings {
		oldest = min(oldest, began)
	}
	for d, at := range b.ended {
		if at < oldest {
			delete(b.ended, d)
		}
	}
}

// Ran reports whether the delivery runs, or ran at any time since the reading
// began.
func (b *Book[D, H]) Ran(r Reading, d D) bool {
	if _, ok := b.running[d]; ok {
		return true
	}
	at, ok := b.ended[d]
	return ok && at >= r.began
}

// Busy reports whether a delivery of the handler and key runs.
func (b *Book[D, H]) Busy(hk HandlerKey[H]) bool { return b.keys[hk] > 0 }

// Add records a claimed delivery. key is "" for one without an ordering key.
func (b *Book[D, H]) Add(d D, h H, key string, t Token) {
	b.remove(d)
	e := entry[H]{token: t}
	if key != "" {
		e.key = HandlerKey[H]{h, key}
		b.keys[e.key]++
	}
	b.running[d] = e
	delete(b.ended, d)
}

// Remove records that the claim of the delivery has ended. It does nothing
// when the delivery does not run under this token.
func (b *Book[D, H]) Remove(d D, t Token) {
	if e, ok := b.running[d]; !ok || e.token != t {
		return
	}
	b.remove(d)
	if len(b.readings) > 0 {
		b.clock++
		b.ended[d] = b.clock
	}
}

func (b *Book[D, H]) remove(d D) {
	e, ok := b.running[d]
	if !ok {
		return
	}
	delete(b.running, d)
	if e.key.Key == "" {
		return
	}
	if b.keys[e.key]--; b.keys[e.key] == 0 {
		delete(b.keys, e.key)
	}
}

// Holds reports whether the delivery runs under exactly this token.
func (b *Book[D, H]) Holds(d D, t Token) bool {
	e, ok := b.running[d]
	return ok && e.token == t
}

// Len is the number of running deliveries.
func (b *Book[D, H]) Len() int { return len(b.running) }

// Each calls f for every running delivery, in no order, until f returns false.
func (b *Book[D, H]) Each(f func(D, Token) bool) {
	for d, e := range b.running {
		if !f(d, e.token) {
			return
		}
	}
}
