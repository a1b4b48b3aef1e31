package lane

import "time"

// Bounds remembers for each slice (a lane, or a handler's lane) the time
// before which it is known to have nothing to claim, so that a claim need not
// ask the database. It is not safe for concurrent use.
//
// A bound is only ever a hint about the past of the database: a transaction
// may commit a delivery whose due time lies before it. Three rules keep that
// from hiding work. A publish in this process lowers the bound ([Bounds.Hint]),
// also while a reading is under way. A reading raises a bound only if it was
// not cut short. And whoever uses bounds forgets all of them ([Bounds.Forget])
// whenever another process may have committed, at least once a second.
type Bounds[S comparable] struct {
	slices map[S]bound
	clock  uint64
	forgot uint64 // when everything was last forgotten
}

type bound struct {
	empty  time.Time // nothing is due before this; the zero time is unknown
	hinted uint64    // when it was last lowered
}

// NewBounds returns bounds that know nothing.
func NewBounds[S comparable]() *Bounds[S] {
	return &Bounds[S]{slices: make(map[S]bound)}
}

// Mark is a moment before a reading began.
type Mark uint64

// Begin must be called before the database is asked.
func (b *Bounds[S]) Begin() Mark {
	b.clock++
	return Mark(b.clock)
}

// Hint says that a delivery that is due at due may have been added.
func (b *Bounds[S]) Hint(s S, due time.Time) {
	b.clock++
	old := b.slices[s]
	if !due.Before(old.empty) {
		// A slice of which nothing is known stays so: what else it has may be due.
		due = old.empty
	}
	b.slices[s] = bound{empty: due, hinted: b.clock}
}

// Raise says that a complete reading that began at m found nothing unclaimed in
// the slice that is due before next. It does nothing when the slice was hinted,
// or everything was forgotten, since.
func (b *Bounds[S]) Raise(s S, next time.Time, m Mark) {
	old := b.slices[s]
	if old.hinted > uint64(m) || b.forgot > uint64(m) {
		return
	}
	b.slices[s] = bound{empty: next, hinted: old.hinted}
}

// May reports whether the slice may have something due at now.
func (b *Bounds[S]) May(s S, now time.Time) bool {
	old, known := b.slices[s]
	return !known || old.empty.IsZero() || !old.empty.After(now)
}

// Forget drops every bound: each slice may have work again.
func (b *Bounds[S]) Forget() {
	b.clock++
	b.forgot = b.clock
	clear(b.slices)
}
