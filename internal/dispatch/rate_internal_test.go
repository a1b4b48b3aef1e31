package dispatch

import (
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	b := newBucket(4, 2*time.Second, at)
	if n := b.available(at, 10); n != 4 {
		t.Fatalf("%d at first, want 4", n)
	}
	if n := b.available(at, 3); n != 3 {
		t.Errorf("%d of at most 3", n)
	}
	for range 4 {
		b.take()
	}
	if next := b.next(at); !next.Equal(at.Add(500 * time.Millisecond)) {
		t.Errorf("the next token comes at %v", next)
	}
	if n := b.available(at.Add(1250*time.Millisecond), 10); n != 2 {
		t.Errorf("%d after 1.25 s, want 2", n)
	}
	b.take()
	b.take()
	if next := b.next(at.Add(1250 * time.Millisecond)); !next.Equal(at.Add(1500 * time.Millisecond)) {
		t.Errorf("the rest of a token was lost: the next comes at %v", next)
	}
	if n := b.available(at.Add(time.Hour), 10); n != 4 {
		t.Errorf("%d after an hour, want no more than 4", n)
	}
	if n := b.available(at.Add(-time.Hour), 10); n != 4 {
		t.Errorf("%d when the clock jumps back", n)
	}
	b.take()
	if n := b.available(at.Add(-time.Hour+500*time.Millisecond), 10); n != 4 {
		t.Errorf("%d half a second after the jump, want 4", n)
	}
	none := newBucket(0, 0, at)
	none.take()
	if n := none.available(at, 7); n != 7 || !none.next(at).IsZero() {
		t.Errorf("without a limit there are %d", n)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	var p pace
	if n := p.ahead(at); n != 0 {
		t.Errorf("%d before anything finished", n)
	}
	for i := range 100 {
		p.finished(at.Add(time.Duration(i) * time.Millisecond))
	}
	if n := p.ahead(at.Add(100 * time.Millisecond)); n < 40 || n > 55 {
		t.Errorf("%d at 1 a millisecond, want those of some 50 ms", n)
	}
	if n := p.ahead(at.Add(time.Second)); n != 0 {
		t.Errorf("%d long after the last one", n)
	}
	p.finished(at.Add(time.Minute))
	if n := p.ahead(at.Add(time.Minute)); n != 1 {
		t.Errorf("%d after a pause, want 1", n)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for errs, want := range map[int]time.Duration{0: 10, 1: 10, 2: 20, 4: 80, 7: 640, 8: 1000, 1000: 1000} {
		if got := backoff(errs, time.Second); got != want*time.Millisecond {
			t.Errorf("after %d errors %v, want %v ms", errs, got, int64(want))
		}
	}
}
