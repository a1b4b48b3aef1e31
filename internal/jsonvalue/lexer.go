package jsonvalue

import "unicode/utf8"

// The kinds of token; a token of punctuation has its own byte as kind.
const (
	kindEnd     byte = 0
	kindString  byte = '"'
	kindNumber  byte = '0'
	kindLiteral byte = 'a'
)

// token is data[start:end] of the text it was read from.
type token struct {
	kind       byte
	escaped    bool // a string with at least one backslash
	start, end int
}

// lexer splits a text into tokens and validates each of them, but not their
// order.
type lexer struct {
	data []byte
	pos  int
}

// next returns the next token, of kindEnd at the end of the text. When it
// returns a reason, pos is the offset of the byte at fault.
func (l *lexer) next() (token, Reason) {
	for l.pos < len(l.data) && isSpace(l.data[l.pos]) {
		l.pos++
	}
	if l.pos == len(l.data) {
		return token{kind: kindEnd, start: l.pos, end: l.pos}, 0
	}
	switch c := l.data[l.pos]; c {
	case '{', '}', '[', ']', ':', ',':
		l.pos++
		return token{kind: c, start: l.pos - 1, end: l.pos}, 0
	case '"':
		return l.string()
	case 't':
		return l.literal("true")
	case 'f':
		return l.literal("false")
	case 'n':
		return l.literal("null")
	default:
		return l.number()
	}
}

func (l *lexer) literal(word string) (token, Reason) {
	start, end := l.pos, l.pos+len(word)
	if end > len(l.data) || string(l.data[start:end]) != word {
		return token{}, Syntax
	}
	l.pos = end
	return token{kind: kindLiteral, start: start, end: end}, 0
}

func (l *lexer) string() (token, Reason) {
	t := token{kind: kindString, start: l.pos}
	i := l.pos + 1
	for i < len(l.data) {
		c := l.data[i]
		if ' ' <= c && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		var size int
		var reason Reason
		switch {
		case c == '"':
			l.pos, t.end = i+1, i+1
			return t, 0
		case c == '\\':
			t.escaped = true
			_, size, reason = unescape(l.data[i:])
		case c < ' ':
			reason = ControlChar
		default:
			// A U+FFFD that is really in the text has size 3.
			if _, size = utf8.DecodeRune(l.data[i:]); size == 1 {
				reason = InvalidUTF8
			}
		}
		if reason != 0 {
			l.pos = i
			return t, reason
		}
		i += size
	}
	l.pos = i
	return t, Syntax
}

func (l *lexer) number() (token, Reason) {
	t := token{kind: kindNumber, start: l.pos}
	l.accept('-', '-')
	if !l.accept('0', '0') && !l.digits() {
		return t, Syntax
	}
	if l.accept('.', '.') && !l.digits() {
		return t, Syntax
	}
	if l.accept('e', 'E') {
		l.accept('+', '-')
		if !l.digits() {
			return t, Syntax
		}
	}
	t.end = l.pos
	return t, 0
}

// accept steps over one byte that is a or b.
func (l *lexer) accept(a, b byte) bool {
	if l.pos < len(l.data) && (l.data[l.pos] == a || l.data[l.pos] == b) {
		l.pos++
		return true
	}
	return false
}

// digits steps over a run of digits and reports whether there was one.
func (l *lexer) digits() bool {
	start := l.pos
	for l.pos < len(l.data) && '0' <= l.data[l.pos] && l.data[l.pos] <= '9' {
		l.pos++
	}
	return l.pos > start
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\n' || c == '\t' || c == '\r'
}
