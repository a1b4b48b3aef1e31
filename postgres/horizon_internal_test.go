package postgres

import (
	"testing"
	"testing/synctest"
	"time"
)

// P3: only after a look at everything that took long do looks begin where the last one found something, and then for
// as long as keeps those at everything to a twentieth of the time.
func TestHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refs, now := []int32{7}, int64(1_000_000)
		var h horizon
		look := func(cost time.Duration, found ...seenLane) {
			began := time.Now()
			time.Sleep(cost)
			h.looked(refs, found, now, h.from(refs, began) == nil, began)
		}
		look(40 * time.Millisecond)
		if h.from(refs, time.Now()) != nil {
			t.Fatal("a cheap look narrows the next one")
		}
		old := seenLane{at: slice{7, 3}, place: place{due: 5, event: 9}}
		look(time.Second, old)
		from := h.from(refs, time.Now())
		if from == nil || len(from.lanes) != 256 {
			t.Fatalf("a look that took long does not narrow the next one: %+v", from)
		}
		for i, number := range from.lanes {
			want := place{due: now - lookBack}
			if number == 3 {
				want = old.place
			}
			if got := (place{from.dues[i], from.events[i]}); got != want {
				t.Errorf("lane %d begins at %+v, want %+v", number, got, want)
			}
		}
		if h.from([]int32{7, 8}, time.Now()) != nil {
			t.Error("another handler is looked at from a place that nobody has looked at")
		}
		now += 2 * lookBack
		look(time.Millisecond)
		if !h.hides(slice{7, 3}, old.place) || h.hides(slice{7, 3}, place{due: now}) {
			t.Error("it is not known what the look did not see")
		}
		time.Sleep(lookShare * time.Second)
		if h.from(refs, time.Now()) != nil {
			t.Error("nothing is looked at as a whole again")
		}
		look(time.Millisecond)
		if h.from(refs, time.Now()) != nil || h.hides(slice{7, 3}, old.place) {
			t.Error("a cheap look at everything does not end it")
		}
	})
}
