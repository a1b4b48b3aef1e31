package postgres

import (
	"math"
	"strconv"
	"strings"
)

// cursor is the place of the last row of a page.
type cursor struct {
	event   int64
	handler int32
}

// before is the place before all deliveries of an event.
func before(event int64) cursor { return cursor{event, math.MaxInt32} }

// String is what [parseCursor] reads.
func (c cursor) String() string {
	return strconv.FormatInt(c.event, 36) + "." + strconv.FormatInt(int64(c.handler), 36)
}

// parseCursor takes what [cursor.String] writes, and "" for the start.
func parseCursor(text string) (cursor, bool) {
	if text == "" {
		return before(math.MaxInt64), true
	}
	a, b, ok := strings.Cut(text, ".")
	if !ok {
		return cursor{}, false
	}
	event, err1 := strconv.ParseInt(a, 36, 64)
	handler, err2 := strconv.ParseInt(b, 36, 32)
	c := cursor{event, int32(handler)}
	return c, err1 == nil && err2 == nil && event > 0 && handler > 0 && c.String() == text
}
