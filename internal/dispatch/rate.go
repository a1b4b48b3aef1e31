package dispatch

import "time"

// bucket is a token bucket. Its zero value allows everything.
type bucket struct {
	every  time.Duration // between two tokens; 0 is no limit
	size   int
	tokens int
	filled time.Time
}

func newBucket(events int, per time.Duration, now time.Time) bucket {
	if events <= 0 {
		return bucket{}
	}
	return bucket{every: max(per/time.Duration(events), 1), size: events, tokens: events, filled: now}
}

// available returns how many may start now, at most most.
func (b *bucket) available(now time.Time, most int) int {
	if b.every == 0 {
		return most
	}
	if passed := now.Sub(b.filled); passed < 0 {
		b.filled = now
	} else if n := int(passed / b.every); n > 0 {
		b.tokens = min(b.tokens+n, b.size)
		b.filled = b.filled.Add(time.Duration(n) * b.every)
	}
	return min(b.tokens, most)
}

func (b *bucket) take() {
	if b.every != 0 {
		b.tokens--
	}
}

// next is when the next token comes, or the zero time when one is there.
func (b *bucket) next(now time.Time) time.Time {
	if b.every == 0 || b.available(now, 1) > 0 {
		return time.Time{}
	}
	return b.filled.Add(b.every)
}
