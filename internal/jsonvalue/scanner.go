package jsonvalue

// want is what the grammar allows next.
type want uint8

const (
	wantValue want = iota
	wantValueOrClose
	wantName
	wantNameOrClose
	wantColon
	wantNext
	wantEnd
)

// frame is an array or object that is still open.
type frame struct {
	open  byte
	names members
}

// scanner holds the open containers on a stack of its own: depth then costs
// memory within the limit the caller chose, never goroutine stack.
type scanner struct {
	lexer
	limits Limits
	want   want
	frames stack[frame]
	names  names
}

// run reads the whole text and returns the first broken rule and its offset,
// or a zero reason.
func (s *scanner) run(object bool) (int, Reason) {
	first, reason := s.next()
	switch {
	case reason != 0:
		return s.pos, reason
	case first.kind == kindEnd:
		return first.start, Empty
	case object && first.kind != '{':
		return first.start, NotObject
	}
	if reason = s.value(first); reason != 0 {
		return first.start, reason
	}
	for {
		t, reason := s.next()
		if reason != 0 {
			return s.pos, reason
		}
		if s.want == wantEnd && t.kind == kindEnd {
			return 0, 0
		}
		if reason = s.step(t); reason != 0 {
			return t.start, reason
		}
	}
}

func (s *scanner) step(t token) Reason {
	switch s.want {
	case wantNameOrClose:
		if t.kind == '}' {
			return s.close(t)
		}
		return s.name(t)
	case wantName:
		return s.name(t)
	case wantColon:
		if t.kind != ':' {
			return Syntax
		}
		s.want = wantValue
		return 0
	case wantValueOrClose:
		if t.kind == ']' {
			return s.close(t)
		}
		return s.value(t)
	case wantValue:
		return s.value(t)
	case wantNext:
		if t.kind != ',' {
			return s.close(t)
		}
		s.want = wantValue
		if s.frames.top().open == '{' {
			s.want = wantName
		}
		return 0
	default:
		return Syntax
	}
}

func (s *scanner) value(t token) Reason {
	switch t.kind {
	case '{', '[':
		if s.frames.size >= s.limits.MaxDepth {
			return TooDeep
		}
		s.frames.push(frame{open: t.kind, names: s.names.begin()})
		s.want = wantValueOrClose
		if t.kind == '{' {
			s.want = wantNameOrClose
		}
		return 0
	case kindNumber:
		if reason := parseDecimal(s.data[t.start:t.end]).check(s.limits); reason != 0 {
			return reason
		}
	case kindString, kindLiteral:
	default:
		return Syntax
	}
	s.after()
	return 0
}

func (s *scanner) name(t token) Reason {
	if t.kind != kindString {
		return Syntax
	}
	if reason := s.names.add(&s.frames.top().names, t); reason != 0 {
		return reason
	}
	s.want = wantColon
	return 0
}

func (s *scanner) close(t token) Reason {
	top := s.frames.top()
	// In ASCII both closing brackets are their opening bracket plus two.
	if t.kind != top.open+2 {
		return Syntax
	}
	s.names.end(top.names)
	s.frames.truncate(s.frames.size - 1)
	s.after()
	return 0
}

// after sets what may follow a complete value.
func (s *scanner) after() {
	s.want = wantNext
	if s.frames.size == 0 {
		s.want = wantEnd
	}
}
