package jsonvalue

// Compact appends src to dst without the whitespace between its tokens and
// returns the extended slice. Every byte of the tokens is kept: no escape is
// added or resolved and no number is rewritten, so [Equal] holds between src
// and the result. src must have passed [Check]; it may share its memory with
// dst only as Compact(src[:0], src), which overwrites it.
func Compact(dst, src []byte) []byte {
	start, inString := 0, false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			inString = !inString
		case c == '\\':
			// Only strings have backslashes; what one escapes is no quote.
			i++
		case !inString && isSpace(c):
			dst = append(dst, src[start:i]...)
			start = i + 1
		}
	}
	return append(dst, src[start:]...)
}
