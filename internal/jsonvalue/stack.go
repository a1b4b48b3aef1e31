package jsonvalue

// fewItems is how many items a stack holds without an allocation.
const fewItems = 32

// stack has its first items in an array of its own and not in a slice over an
// array elsewhere: a slice that append may move makes the compiler put the
// array on the heap, for every text instead of only for the large ones.
type stack[T any] struct {
	few  [fewItems]T
	more []T
	size int
}

func (s *stack[T]) push(item T) {
	if s.size < fewItems {
		s.few[s.size] = item
	} else {
		s.more = append(s.more, item)
	}
	s.size++
}

// at returns the item of an index; the pointer is good until the next push.
func (s *stack[T]) at(i int) *T {
	if i < fewItems {
		return &s.few[i]
	}
	return &s.more[i-fewItems]
}

func (s *stack[T]) top() *T { return s.at(s.size - 1) }

// truncate drops the items from index size on.
func (s *stack[T]) truncate(size int) {
	s.size = size
	s.more = s.more[:max(0, size-fewItems)]
}
