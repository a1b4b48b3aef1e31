package jsonvalue

import "iter"

// Members returns an iterator over the members of an object that [CheckObject]
// let through, in their order: the name unescaped, and the value as it is
// written, without whitespace around it. The value aliases data and must not be
// changed. For a text that is not an object there are no members; a broken
// object ends where it is broken.
func Members(data []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		l := lexer{data: data}
		if !l.expect('{') {
			return
		}
		for {
			name, bad := l.next()
			if bad != 0 || name.kind != kindString || !l.expect(':') {
				return
			}
			value, ok := l.value()
			if !ok || !yield(name.text(data), value) || !l.expect(',') {
				return
			}
		}
	}
}

// expect steps over a token of the given kind.
func (l *lexer) expect(kind byte) bool {
	t, bad := l.next()
	return bad == 0 && t.kind == kind
}

// value steps over a value and returns its bytes.
func (l *lexer) value() ([]byte, bool) {
	start, depth := -1, 0
	for {
		t, bad := l.next()
		if bad != 0 || t.kind == kindEnd {
			return nil, false
		}
		if start < 0 {
			start = t.start
		}
		switch t.kind {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth <= 0 {
			// Without spare capacity an append cannot reach the
			// bytes behind the value.
			return l.data[start:t.end:t.end], depth == 0
		}
	}
}
