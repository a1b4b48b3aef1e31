// Package shutdown has no code of its own: its tests stop buses in all the
// awkward moments, and check what Stop promises. It returns by its deadline and
// says what still runs; no goroutine is left but those of handlers that ignore
// their context; what was claimed is released without a charge; and the lanes
// are free for others at once.
//
// Most rounds run in virtual time, some hundred more in real time, for the race
// detector and a scheduler under load.
package shutdown
