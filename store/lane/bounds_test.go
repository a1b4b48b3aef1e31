package lane_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store/lane"
)

// at is a time n seconds after some start.
func at(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC) }

func TestBounds(t *testing.T) {
	t.Parallel()
	const slice = 7
	for _, test := range []struct {
		name string
		do   func(b *lane.Bounds[int])
		now  int
		want bool
	}{
		{"nothing known", func(*lane.Bounds[int]) {}, 5, true},
		{"before the bound", func(b *lane.Bounds[int]) { b.Raise(slice, at(10), b.Begin()) }, 9, false},
		{"at the bound", func(b *lane.Bounds[int]) { b.Raise(slice, at(10), b.Begin()) }, 10, true},
		{"another slice", func(b *lane.Bounds[int]) { b.Raise(slice+1, at(10), b.Begin()) }, 5, true},
		{"a later reading lowers", func(b *lane.Bounds[int]) {
			b.Raise(slice, at(10), b.Begin())
			b.Raise(slice, at(4), b.Begin())
		}, 5, true},
		{"a hint lowers", func(b *lane.Bounds[int]) {
			b.Raise(slice, at(10), b.Begin())
			b.Hint(slice, at(3))
		}, 5, true},
		{"not before its time", func(b *lane.Bounds[int]) {
			b.Raise(slice, at(10), b.Begin())
			b.Hint(slice, at(6))
		}, 5, false},
		{"a hint never raises", func(b *lane.Bounds[int]) {
			b.Raise(slice, at(4), b.Begin())
			b.Hint(slice, at(20))
		}, 5, true},
		{"a hint says nothing of what else an unknown slice has", func(b *lane.Bounds[int]) {
			b.Hint(slice, at(20))
		}, 5, true},
		{"nor does it after everything was forgotten", func(b *lane.Bounds[int]) {
			b.Raise(slice, at(10), b.Begin())
			b.Forget()
			b.Hint(slice, at(20))
		}, 5, true},
		{"a hint during the reading wins", func(b *lane.Bounds[int]) {
			m := b.Begin()
			b.Hint(slice, at(3))
			b.Raise(slice, at(10), m)
		}, 5, true},
		{"a hint during the reading wins over an old bound, too", func(b *lane.Bounds[int]) {
			b.Raise(slice, at(8), b.Begin())
			m := b.Begin()
			b.Hint(slice, at(3))
			b.Raise(slice, at(10), m)
		}, 5, true},
		{"even a late one of two readings", func(b *lane.Bounds[int]) {
			first := b.Begin()
			second := b.Begin()
			b.Hint(slice, at(3))
			b.Raise(slice, at(10), second)
			b.Raise(slice, at(10), first)
		}, 5, true},
		{"a hint before the reading was seen by it", func(b *lane.Bounds[int]) {
			b.Hint(slice, at(3))
			b.Raise(slice, at(10), b.Begin())
		}, 5, false},
		{"a hint for another slice during the reading", func(b *lane.Bounds[int]) {
			m := b.Begin()
			b.Hint(slice+1, at(3))
			b.Raise(slice, at(10), m)
		}, 5, false},
		{"the next reading raises again", func(b *lane.Bounds[int]) {
			m := b.Begin()
			b.Hint(slice, at(3))
			b.Raise(slice, at(10), m)
			b.Raise(slice, at(10), b.Begin())
		}, 5, false},
		{"forgotten", func(b *lane.Bounds[int]) {
			b.Raise(slice, at(10), b.Begin())
			b.Forget()
		}, 5, true},
		{"forgotten during the reading", func(b *lane.Bounds[int]) {
			m := b.Begin()
			b.Forget()
			b.Raise(slice, at(10), m)
		}, 5, true},
		{"read again after it was forgotten", func(b *lane.Bounds[int]) {
			b.Forget()
			b.Raise(slice, at(10), b.Begin())
		}, 5, false},
		{"hinted during the reading, then forgotten", func(b *lane.Bounds[int]) {
			m := b.Begin()
			b.Hint(slice, at(3))
			b.Forget()
			b.Raise(slice, at(10), m)
		}, 5, true},
		{"nothing at all in the slice", func(b *lane.Bounds[int]) {
			b.Raise(slice, at(1_000_000), b.Begin())
		}, 999_999, false},
	} {
		b := lane.NewBounds[int]()
		test.do(b)
		if got := b.May(slice, at(test.now)); got != test.want {
			t.Errorf("%s: May = %t, want %t", test.name, got, test.want)
		}
	}
}

// Against a model of the slice's contents: whatever the order of commits,
// hints, readings and takes, a bound never hides what is due.
func TestBoundsNeverHideWork(t *testing.T) {
	t.Parallel()
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	for run := range 3_000 {
		b := lane.NewBounds[int]()
		due := make(map[int]int) // what the slice has, by id
		type reading struct {
			mark lane.Mark
			next time.Time
		}
		var readings []reading
		ids := 0
		for step := range 40 {
			switch random.IntN(6) {
			case 0: // A commit of this process: it hints.
				ids++
				due[ids] = random.IntN(20)
				b.Hint(0, at(due[ids]))
			case 1: // A commit of another one, noticed.
				ids++
				due[ids] = random.IntN(20)
				b.Forget()
			case 2: // Something is taken.
				for id := range due {
					delete(due, id)
					break
				}
			case 3, 4: // A reading begins, and sees what is there.
				r := reading{mark: b.Begin(), next: at(1_000)}
				for _, n := range due {
					if at(n).Before(r.next) {
						r.next = at(n)
					}
				}
				readings = append(readings, r)
			case 5: // A reading ends.
				if len(readings) > 0 {
					i := random.IntN(len(readings))
					b.Raise(0, readings[i].next, readings[i].mark)
					readings = append(readings[:i], readings[i+1:]...)
				}
			}
			for id, n := range due {
				if !b.May(0, at(n)) {
					t.Fatalf("run %d, step %d: delivery %d is due at %d and hidden", run, step, id, n)
				}
			}
		}
	}
}
