package lane

// Parking.
const (
	// ParkAt is how many deliveries of one key, waiting behind an unfinished
	// predecessor, make a claim park them.
	ParkAt = 32
	// ParkBatch is how many deliveries one claim parks at most, so that the
	// first claim after a burst costs no more than others.
	ParkBatch = 1000
	// ScanSlack is how many blocked deliveries a claim reads in one lane, beyond
	// what it wants, before it parks what it read and moves on.
	ScanSlack = 256
)

// Verdict is what a [Picker] says of a candidate.
type Verdict uint8

const (
	// Take says that the candidate belongs to the claim.
	Take Verdict = iota + 1
	// Running says that it runs already.
	Running
	// Blocked says that an earlier delivery of its handler and key is
	// unfinished, or another one of them runs or was just taken.
	Blocked
	// Full says that its handler has its share, or the claim is full.
	Full
)

// Candidate is a due delivery that a claim has read. H identifies its handler
// (all aliases as one).
type Candidate[H comparable] struct {
	Handler H
	// Key is the ordering key, or "" without one.
	Key      string
	Sequence int64
	// Head is the lowest sequence of an unfinished delivery of the handler and
	// key. It is not used without a key.
	Head int64
	// Runs says that the delivery is claimed already.
	Runs bool
}

// HandlerKey is an ordering key as one handler sees it.
type HandlerKey[H comparable] struct {
	Handler H
	Key     string
}

// Picker decides which candidates a claim takes. It holds the per-key rules:
// see the package comment.
type Picker[H comparable] struct {
	room    int
	shares  map[H]int
	busy    func(HandlerKey[H]) bool
	closed  map[HandlerKey[H]]bool
	waiting map[HandlerKey[H]]int
}

// NewPicker returns a picker for a claim of at most limit deliveries. busy
// reports whether a delivery of the handler and key runs under this owner; it
// may be nil.
func NewPicker[H comparable](limit int, busy func(HandlerKey[H]) bool) *Picker[H] {
	return &Picker[H]{
		room:    limit,
		shares:  make(map[H]int),
		busy:    busy,
		closed:  make(map[HandlerKey[H]]bool),
		waiting: make(map[HandlerKey[H]]int),
	}
}

// Allow lets the picker take n more deliveries of the handler.
func (p *Picker[H]) Allow(h H, n int) { p.shares[h] += n }

// Room is how many deliveries of the handler may still be taken.
func (p *Picker[H]) Room(h H) int { return min(p.room, p.shares[h]) }

// Left is how many deliveries of any handler may still be taken.
func (p *Picker[H]) Left() int { return p.room }

// Offer decides on one candidate. Candidates of a handler must be offered in
// the order in which they became due.
func (p *Picker[H]) Offer(c Candidate[H]) Verdict {
	if c.Runs {
		if c.Key != "" {
			p.closed[HandlerKey[H]{c.Handler, c.Key}] = true
		}
		return Running
	}
	if c.Key != "" {
		hk := HandlerKey[H]{c.Handler, c.Key}
		if p.closed[hk] || c.Sequence > c.Head || (p.busy != nil && p.busy(hk)) {
			p.waiting[hk]++
			return Blocked
		}
		if p.Room(c.Handler) <= 0 {
			return Full
		}
		p.closed[hk] = true
	} else if p.Room(c.Handler) <= 0 {
		return Full
	}
	p.room--
	p.shares[c.Handler]--
	return Take
}

// Waiting is how many blocked candidates of the handler and key were offered.
func (p *Picker[H]) Waiting(h H, key string) int { return p.waiting[HandlerKey[H]{h, key}] }

// Park returns the keys whose blocked candidates are to be parked: those with
// at least ParkAt of them, or all when everything is set (a lane that is handed
// back, or whose reading was cut short by blocked candidates).
func (p *Picker[H]) Park(everything bool) []HandlerKey[H] {
	var keys []HandlerKey[H]
	for hk, n := range p.waiting {
		if everything || n >= ParkAt {
			keys = append(keys, hk)
		}
	}
	return keys
}
