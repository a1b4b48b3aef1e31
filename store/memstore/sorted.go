package memstore

import (
	"iter"
	"slices"
	"sort"
)

// chunkSize is how many elements a chunk of a sorted list has when it is split.
const chunkSize = 512

// sorted is an ordered list in chunks: inserting and deleting cost a search
// and the move of at most one chunk, reading in order costs a step.
type sorted[T any] struct {
	compare func(a, b T) int
	chunks  [][]T
	size    int
}

func newSorted[T any](compare func(a, b T) int) *sorted[T] {
	return &sorted[T]{compare: compare}
}

func (l *sorted[T]) len() int { return l.size }

// first returns the lowest element, or false when the list is empty.
func (l *sorted[T]) first() (T, bool) {
	if l.size == 0 {
		var none T
		return none, false
	}
	return l.chunks[0][0], true
}

// seek returns the position of the first element for which reached is true.
// reached must be false up to some element and true from there on.
func (l *sorted[T]) seek(reached func(T) bool) cursor[T] {
	chunk := sort.Search(len(l.chunks), func(i int) bool {
		return reached(l.chunks[i][len(l.chunks[i])-1])
	})
	if chunk == len(l.chunks) {
		return cursor[T]{list: l, chunk: chunk}
	}
	at := sort.Search(len(l.chunks[chunk]), func(i int) bool { return reached(l.chunks[chunk][i]) })
	return cursor[T]{list: l, chunk: chunk, at: at}
}

func (l *sorted[T]) find(v T) cursor[T] {
	return l.seek(func(other T) bool { return l.compare(other, v) >= 0 })
}

// insert adds v, which must not be in the list.
func (l *sorted[T]) insert(v T) {
	l.size++
	c := l.find(v)
	if c.chunk == len(l.chunks) {
		last := len(l.chunks) - 1
		if last < 0 || len(l.chunks[last]) >= chunkSize {
			l.chunks = append(l.chunks, []T{v})
		} else {
			l.chunks[last] = append(l.chunks[last], v)
		}
		return
	}
	chunk := slices.Insert(l.chunks[c.chunk], c.at, v)
	l.chunks[c.chunk] = chunk
	if len(chunk) > chunkSize {
		half := len(chunk) / 2
		l.chunks[c.chunk] = chunk[:half:half]
		l.chunks = slices.Insert(l.chunks, c.chunk+1, slices.Clone(chunk[half:]))
	}
}

// remove takes v out and reports whether it was in the list.
func (l *sorted[T]) remove(v T) bool {
	c := l.find(v)
	found, ok := c.value()
	if !ok || l.compare(found, v) != 0 {
		return false
	}
	l.size--
	chunk := slices.Delete(l.chunks[c.chunk], c.at, c.at+1)
	l.chunks[c.chunk] = chunk
	switch {
	case len(chunk) == 0:
		l.chunks = slices.Delete(l.chunks, c.chunk, c.chunk+1)
	case len(chunk) < chunkSize/4:
		l.merge(c.chunk)
		l.merge(c.chunk - 1)
	}
	return true
}

// merge joins chunk i with the next one if they are small together.
func (l *sorted[T]) merge(i int) {
	if i < 0 || i+1 >= len(l.chunks) || len(l.chunks[i])+len(l.chunks[i+1]) > chunkSize/2 {
		return
	}
	l.chunks[i] = append(l.chunks[i], l.chunks[i+1]...)
	l.chunks = slices.Delete(l.chunks, i+1, i+2)
}

// all yields the elements in order. The list must not change meanwhile.
func (l *sorted[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, chunk := range l.chunks {
			for _, v := range chunk {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// backward yields the elements from the highest to the lowest.
func (l *sorted[T]) backward() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, chunk := range slices.Backward(l.chunks) {
			for _, v := range slices.Backward(chunk) {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// cursor is a position in a list that does not change meanwhile.
type cursor[T any] struct {
	list  *sorted[T]
	chunk int
	at    int
}

// value returns the element at the cursor, or false behind the last one.
func (c *cursor[T]) value() (T, bool) {
	if c.chunk >= len(c.list.chunks) {
		var none T
		return none, false
	}
	return c.list.chunks[c.chunk][c.at], true
}

func (c *cursor[T]) next() {
	c.at++
	if c.at == len(c.list.chunks[c.chunk]) {
		c.chunk, c.at = c.chunk+1, 0
	}
}
