package sqlite

import (
	"math"
	"strconv"
	"strings"
)

// cursor is the place of the last row of a page.
type cursor struct{ event, handler int64 }

// String is what [parseCursor] reads.
func (c cursor) String() string {
	return strconv.FormatInt(c.event, 36) + "." + strconv.FormatInt(c.handler, 36)
}

// parseCursor takes what [cursor.String] writes, and "" for the start.
func parseCursor(text string) (cursor, bool) {
	if text == "" {
		return cursor{event: math.MaxInt64}, true
	}
	a, b, ok := strings.Cut(text, ".")
	if !ok {
		return cursor{}, false
	}
	event, err1 := strconv.ParseInt(a, 36, 64)
	handler, err2 := strconv.ParseInt(b, 36, 64)
	c := cursor{event, handler}
	return c, err1 == nil && err2 == nil && event > 0 && handler > 0 && c.String() == text
}

func numberText(n int64) string { return strconv.FormatInt(n, 10) }
