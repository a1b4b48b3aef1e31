package main

import "time"

// clock counts processor time, which a loaded machine disturbs least.
type clock struct {
	// name follows that of the case.
	name string
	read func() time.Duration
}

// clocks are what counts processor time in a run. A clock that does not go is of
// a system that does not tell.
func (b *bench) clocks() []clock {
	serverTime := b.site.processorTime()
	if serverTime == nil {
		return []clock{{"processor time", processorTime}}
	}
	return []clock{
		{"processor time with the server's", func() time.Duration { return processorTime() + serverTime() }},
		{"processor time of the client", processorTime},
	}
}

// timing is what clocks counted.
type timing struct {
	clocks []clock
	before []time.Duration
	used   []time.Duration
}

func newTiming(clocks []clock) *timing {
	return &timing{clocks: clocks, before: make([]time.Duration, len(clocks)), used: make([]time.Duration, len(clocks))}
}

func (t *timing) start() {
	for i, c := range t.clocks {
		t.before[i] = c.read()
	}
}

func (t *timing) stop() {
	for i, c := range t.clocks {
		t.used[i] += c.read() - t.before[i]
	}
}

// report adds the microseconds of each of n things, and begins anew.
func (t *timing) report(r *report, m measurement, n int64) {
	name := m.Case
	for i, c := range t.clocks {
		if t.used[i] > 0 {
			m.Case = name + ", " + c.name
			r.add(m, t.used[i].Seconds()*1e6/float64(max(n, 1)))
		}
		t.used[i] = 0
	}
}

// checked notes that the rows of the measurements were counted.
func (t *timing) checked(r *report, name, variant, system string) {
	for _, c := range t.clocks {
		r.checked(name+", "+c.name, variant, system)
	}
}
