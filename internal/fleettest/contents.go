package fleettest

// StoredEvent is an event in the database.
type StoredEvent struct {
	ID, Type, Key string
	Sequence      int64
	Payload       OrderOf
	// Handlers counts those it ever had, Completed the completions that were recorded, Dead has those for which it is
	// dead, sorted.
	Handlers, Completed int
	Dead                []string
}

// Contents is what is in the database at the end.
type Contents struct {
	Events []*StoredEvent
	// Orders and Effects are the rows of the user's tables.
	Orders, Effects []string
	// Strangers counts completions and dead deliveries without an event.
	Strangers int
	// Left counts what should not be there, by its name.
	Left map[string]int
}

// index takes over what was read from the database.
func (r *Report) index() {
	for _, e := range r.kept.Events {
		r.events[e.ID] = e
	}
	for _, id := range r.kept.Orders {
		r.orders[id] = true
	}
	for _, id := range r.kept.Effects {
		r.effects[id]++
	}
	if r.kept.Strangers > 0 {
		r.report("I2: %d completions or dead deliveries are of no event", r.kept.Strangers)
	}
}
