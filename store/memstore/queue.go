package memstore

// queue merges lanes in the order of due times: a heap of cursors.
type queue struct{ cursors []cursor[*delivery] }

// newQueue takes the cursors over. None of them may be at its end.
func newQueue(cursors []cursor[*delivery]) *queue {
	q := &queue{cursors: cursors}
	for i := len(cursors)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
	return q
}

// head returns the delivery that is next, or nil.
func (q *queue) head() *delivery {
	if len(q.cursors) == 0 {
		return nil
	}
	d, _ := q.cursors[0].value()
	return d
}

// advance moves on behind the head.
func (q *queue) advance() {
	q.cursors[0].next()
	if _, ok := q.cursors[0].value(); !ok {
		q.drop()
		return
	}
	q.sink(0)
}

// drop leaves out the rest of the head's lane.
func (q *queue) drop() {
	last := len(q.cursors) - 1
	q.cursors[0] = q.cursors[last]
	q.cursors = q.cursors[:last]
	q.sink(0)
}

func (q *queue) less(i, j int) bool {
	a, _ := q.cursors[i].value()
	b, _ := q.cursors[j].value()
	return byDue(a, b) < 0
}

func (q *queue) sink(i int) {
	for {
		low := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.cursors); child++ {
			if q.less(child, low) {
				low = child
			}
		}
		if low == i {
			return
		}
		q.cursors[i], q.cursors[low] = q.cursors[low], q.cursors[i]
		i = low
	}
}
