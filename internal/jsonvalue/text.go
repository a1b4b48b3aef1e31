package jsonvalue

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// HasEscapedReplacement reports whether data, the output of [encoding/json],
// has the escape \ufffd, in either case, in any string or member name.
//
// json.Marshal writes that escape for invalid UTF-8 in a Go string, while it
// writes a U+FFFD that is really in the string as it is. The escape therefore
// tells that the encoded text has lost bytes. It tells nothing about texts from
// elsewhere, such as a json.RawMessage, where the escape is a legal spelling.
//
// In a build with GOEXPERIMENT=jsonv2, json.Marshal writes U+FFFD for invalid
// UTF-8 without an escape, and the loss cannot be seen in its output.
func HasEscapedReplacement(data []byte) bool {
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 {
			return false
		}
		data = data[i:]
		if len(data) >= 6 && data[1] == 'u' {
			if r, ok := hex4(data[2:6]); ok && r == utf8.RuneError {
				return true
			}
		}
		// The byte after the backslash goes with it: in \\ufffd the
		// second backslash begins no escape.
		data = data[min(2, len(data)):]
	}
}

// inside returns the bytes between the quotes of a string token.
func (t token) inside(data []byte) []byte { return data[t.start+1 : t.end-1] }

// text returns the characters of a string token.
func (t token) text(data []byte) string {
	if !t.escaped {
		return string(t.inside(data))
	}
	return string(appendText(nil, t.inside(data)))
}

// appendText appends the characters of the inside of a valid string.
func appendText(dst, inside []byte) []byte {
	for len(inside) > 0 {
		r, size := firstRune(inside)
		dst = utf8.AppendRune(dst, r)
		inside = inside[size:]
	}
	return dst
}

// equalText compares the insides of two valid strings after unescaping.
func equalText(a, b []byte) bool {
	for len(a) > 0 && len(b) > 0 {
		ra, na := firstRune(a)
		rb, nb := firstRune(b)
		if ra != rb {
			return false
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) == len(b)
}

// firstRune returns the character a valid string begins with, and how many
// bytes it is written with.
func firstRune(b []byte) (rune, int) {
	if b[0] == '\\' {
		r, size, _ := unescape(b)
		return r, size
	}
	return utf8.DecodeRune(b)
}

// unescape reads the escape, or the pair of escapes, that b begins with. The
// size is at least 1 even when there is a reason.
func unescape(b []byte) (r rune, size int, reason Reason) {
	if len(b) < 2 {
		return utf8.RuneError, 1, Syntax
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2, 0
	case 'b':
		return '\b', 2, 0
	case 'f':
		return '\f', 2, 0
	case 'n':
		return '\n', 2, 0
	case 'r':
		return '\r', 2, 0
	case 't':
		return '\t', 2, 0
	}
	r, ok := unicodeEscape(b)
	if !ok {
		return utf8.RuneError, 1, Syntax
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, 0
	}
	if low, ok := unicodeEscape(b[6:]); ok {
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, 12, 0
		}
	}
	return utf8.RuneError, 1, LoneSurrogate
}

// unicodeEscape reads the \u escape b begins with.
func unicodeEscape(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	return hex4(b[2:6])
}

func hex4(b []byte) (r rune, ok bool) {
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
