package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Bench runs the benchmarks that all stores share. Those that need a backlog
// make it before the clock runs: a million deliveries take a while.
func Bench(b *testing.B, backend Backend) {
	b.Helper()
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("publish/events=%d", n), func(b *testing.B) { benchPublish(b, backend, n) })
	}
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("claim+complete/batch=%d", n), func(b *testing.B) { benchDrain(b, backend, n, "") })
		b.Run(fmt.Sprintf("claim+complete/keyed/batch=%d", n), func(b *testing.B) { benchDrain(b, backend, n, "k") })
	}
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		for _, batch := range []int{10, 100} {
			b.Run(fmt.Sprintf("claim/waiting=%d/batch=%d", n, batch), func(b *testing.B) { benchClaim(b, backend, n, batch) })
		}
	}
	b.Run("claim/behind-one-key=10000", func(b *testing.B) { benchBlocked(b, backend, 10_000) })
}

// benchOwner is the worker of all benchmarks.
const benchOwner = "w"

// bench is the bed of a benchmark.
type bench struct {
	b   *testing.B
	s   store.Store
	now time.Time
	ids int
}

func newBench(b *testing.B, backend Backend) *bench {
	b.Helper()
	x := &bench{b: b, s: backend.New(b).Open(b, Options{}), now: epoch()}
	if err := x.s.Setup(b.Context()); err != nil {
		b.Fatalf("setup: %v", err)
	}
	return x
}

// events makes n events; with a prefix of keys each has a key of its own.
func (x *bench) events(n int, key string) []store.NewEvent {
	events := make([]store.NewEvent, n)
	for i := range events {
		x.ids++
		k := ""
		if key != "" {
			k = numberedName(key, x.ids)
		}
		events[i] = newEvent(numberedName("e", x.ids), k, x.now, "h")
	}
	return events
}

func (x *bench) publish(events []store.NewEvent) {
	x.b.Helper()
	if _, err := publish(x.b.Context(), x.s, x.now, events...); err != nil {
		x.b.Fatalf("publish: %v", err)
	}
}

func (x *bench) fill(n int, key string) {
	x.b.Helper()
	for n > 0 {
		part := min(n, 5000)
		x.publish(x.events(part, key))
		n -= part
	}
}

func (x *bench) claim(n int) []store.Claimed {
	x.b.Helper()
	result, err := x.s.Claim(x.b.Context(), request(benchOwner, x.now, n, "h"))
	if err != nil {
		x.b.Fatalf("claim: %v", err)
	}
	return result.Deliveries
}

func (x *bench) settle(claimed []store.Claimed, settle func(store.Claimed) store.Settlement) {
	x.b.Helper()
	list := make([]store.Settlement, len(claimed))
	for i, c := range claimed {
		list[i] = settle(c)
	}
	ok, err := x.s.Settle(x.b.Context(), benchOwner, list, x.now)
	if err != nil {
		x.b.Fatalf("settle: %v", err)
	}
	for i := range ok {
		if !ok[i] {
			x.b.Fatalf("settlement %d was refused", i)
		}
	}
}

// perEvent reports the time of one event.
func perEvent(b *testing.B, n int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
}

func benchPublish(b *testing.B, backend Backend, n int) {
	b.Helper()
	x := newBench(b, backend)
	for b.Loop() {
		x.publish(x.events(n, ""))
	}
	perEvent(b, n)
}

// benchDrain claims and completes; whatever is missing is published while the
// clock stands still.
func benchDrain(b *testing.B, backend Backend, n int, key string) {
	b.Helper()
	x := newBench(b, backend)
	left := 0
	for b.Loop() {
		if left < n {
			b.StopTimer()
			x.fill(100*n, key)
			left += 100 * n
			b.StartTimer()
		}
		got := x.claim(n)
		if len(got) == 0 {
			b.Fatal("claimed nothing")
		}
		left -= len(got)
		x.settle(got, completion)
	}
	perEvent(b, n)
}

// benchClaim claims from a backlog; what was claimed goes back while the clock
// stands still, so that the backlog stays as it is.
func benchClaim(b *testing.B, backend Backend, waiting, n int) {
	b.Helper()
	x := newBench(b, backend)
	x.fill(waiting, "")
	for b.Loop() {
		got := x.claim(n)
		b.StopTimer()
		if len(got) != n {
			b.Fatalf("claimed %d, want %d", len(got), n)
		}
		x.settle(got, release)
		b.StartTimer()
	}
}

// benchBlocked claims free work beside a blocked key.
func benchBlocked(b *testing.B, backend Backend, behind int) {
	b.Helper()
	x := newBench(b, backend)
	var events []store.NewEvent
	for range behind {
		x.ids++
		events = append(events, newEvent(numberedName("e", x.ids), "hot", x.now, "h"))
	}
	x.publish(events)
	if got := x.claim(1); len(got) != 1 {
		b.Fatalf("claimed %d of the key, want its head", len(got))
	}
	for b.Loop() {
		b.StopTimer()
		x.publish(x.events(10, ""))
		b.StartTimer()
		got := x.claim(10)
		b.StopTimer()
		x.settle(got, completion)
		b.StartTimer()
	}
}
