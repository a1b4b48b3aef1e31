package memstore

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Against a sorted slice: random inserts, removals and searches.
func TestSortedMatchesASortedSlice(t *testing.T) {
	t.Parallel()
	const seed = 3
	random := rand.New(rand.NewPCG(seed, seed))
	for _, span := range []int{10, 3_000, 1 << 40} {
		l := newSorted(cmp.Compare[int])
		var model []int
		for step := range 12_000 {
			v := random.IntN(span)
			at, found := slices.BinarySearch(model, v)
			// It grows first and shrinks then, so that chunks split and merge.
			if grow := step < 6_000; !found && (grow || random.IntN(4) == 0) {
				l.insert(v)
				model = slices.Insert(model, at, v)
			} else if len(model) > 0 {
				if !found && random.IntN(2) == 0 {
					v = model[random.IntN(len(model))]
				}
				at, found = slices.BinarySearch(model, v)
				if l.remove(v) != found {
					t.Fatalf("remove(%d) = %t, want %t", v, !found, found)
				}
				if found {
					model = slices.Delete(model, at, at+1)
				}
			}
			if l.len() != len(model) {
				t.Fatalf("len = %d, want %d", l.len(), len(model))
			}
			if first, ok := l.first(); ok != (len(model) > 0) || (ok && first != model[0]) {
				t.Fatalf("first = %d, %t", first, ok)
			}
			if step%500 != 0 {
				continue
			}
			if got := slices.Collect(l.all()); !slices.Equal(got, model) {
				t.Fatal("all gives other elements or another order")
			}
			backward := slices.Collect(l.backward())
			slices.Reverse(backward)
			if !slices.Equal(backward, model) {
				t.Fatal("backward gives other elements or another order")
			}
			bound := random.IntN(span)
			var behind []int
			for c := l.seek(func(v int) bool { return v > bound }); ; c.next() {
				v, ok := c.value()
				if !ok {
					break
				}
				behind = append(behind, v)
			}
			from, _ := slices.BinarySearch(model, bound+1)
			if !slices.Equal(behind, model[from:]) {
				t.Fatalf("seek behind %d gives other elements", bound)
			}
		}
	}
}

// However it is filled, a list stays in chunks that are not tiny.
func TestSortedKeepsChunksLarge(t *testing.T) {
	t.Parallel()
	l := newSorted(cmp.Compare[int])
	for i := range 100_000 {
		l.insert(i)
	}
	for i := range 100_000 {
		if i%50 != 0 {
			l.remove(i)
		}
	}
	if limit := 3 * l.len() / (chunkSize / 4); len(l.chunks) > limit {
		t.Errorf("%d elements in %d chunks, want at most %d", l.len(), len(l.chunks), limit)
	}
}
