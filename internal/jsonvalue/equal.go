package jsonvalue

import "bytes"

// Equal reports whether two texts that [Check] let through have the same value,
// comparing token by token:
//
//   - Numbers are decimals: 1e2, 100 and 100.0 are equal, and so are 0 and -0,
//     which differ in nothing but spelling as decimals. Exponents are compared,
//     never expanded.
//   - Strings and member names are equal when their code points are after
//     unescaping: "a" and "\u0061" are equal.
//   - Members and elements have to come in the same order.
//   - Whitespace between tokens does not count.
//
// Numbers whose exponent is written with 13 digits or more, which Check refuses
// under any limit, are equal only to zero of any spelling if they are zero, and
// to the same bytes otherwise. Equal does not allocate.
func Equal(a, b []byte) bool {
	la, lb := lexer{data: a}, lexer{data: b}
	for {
		ta, bad := la.next()
		if bad != 0 {
			return false
		}
		tb, bad := lb.next()
		if bad != 0 || ta.kind != tb.kind {
			return false
		}
		if ta.kind == kindEnd {
			return true
		}
		if !equalToken(a[ta.start:ta.end], b[tb.start:tb.end], ta.kind, ta.escaped || tb.escaped) {
			return false
		}
	}
}

func equalToken(a, b []byte, kind byte, escaped bool) bool {
	switch {
	case kind == kindNumber:
		return equalNumber(a, b)
	case kind == kindString && escaped:
		return equalText(a[1:len(a)-1], b[1:len(b)-1])
	default:
		return bytes.Equal(a, b)
	}
}
