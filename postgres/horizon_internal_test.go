package postgres

import (
	"testing"
	"time"
)

// P3: after a look that took long the next ones begin where the last one found something, and each lane has its turn to
// be looked at as a whole, by few in one look, until that is cheap again.
func TestHorizon(t *testing.T) {
	t.Parallel()
	refs, now := []int32{7, 9}, int64(1_000_000)
	const lanes = 2 * 256
	var h horizon
	look := func(took time.Duration, found ...seenLane) (whole int, from *lanesFrom) {
		from = h.from(refs)
		whole = len(h.whole)
		h.looked(refs, found, now, took)
		return whole, from
	}
	if _, from := look(lookTime / 2); from != nil {
		t.Fatal("a first look is no look at everything")
	}
	old := seenLane{at: slice{9, 3}, place: place{due: 5, event: 9}}
	if _, from := look(8*lookTime, old); from != nil {
		t.Fatal("a cheap look narrows the next one")
	}
	seen := make(map[slice]struct{})
	for i := range 8 {
		whole, from := look(lookTime+1, old)
		if whole != lanes/8 || from == nil || len(from.lanes) != lanes {
			t.Fatalf("look %d looks at %d lanes as a whole, want %d", i, whole, lanes/8)
		}
		for n, number := range from.lanes {
			at := slice{from.handlers[n], uint8(number)} //nolint:gosec // below 256
			want := place{due: now - lookBack}
			if at == old.at {
				want = old.place
			}
			if _, ok := h.whole[at]; ok {
				want = place{}
				seen[at] = struct{}{}
			}
			if got := (place{from.dues[n], from.events[n]}); got != want {
				t.Errorf("look %d begins lane %v at %+v, want %+v", i, at, got, want)
			}
			if _, ok := h.whole[at]; h.hides(at, place{due: 1}) != (!ok && place{due: 1}.before(h.places[at])) {
				t.Errorf("look %d: it is not known what it did not see of %v", i, at)
			}
		}
	}
	if len(seen) != lanes {
		t.Errorf("%d lanes had their turn, want %d", len(seen), lanes)
	}
	if _, from := look(time.Hour); from == nil || h.share != lanes/16 {
		t.Errorf("after a look that took too long %d lanes have their turn", h.share)
	}
	for range 3 {
		look(time.Millisecond)
	}
	if h.from(refs) == nil || h.from([]int32{8}).dues[0] != 0 {
		t.Error("a handler that is new is not looked at as a whole")
	}
	look(time.Millisecond)
	if _, from := look(time.Millisecond); from != nil || h.hides(old.at, old.place) {
		t.Error("cheap looks do not end it")
	}
}
