package main

import (
	"fmt"
	"slices"
	"strings"
)

// goal is a promise, and whether the run kept it.
type goal struct {
	Name    string  `json:"name"`
	Want    string  `json:"want"`
	Value   float64 `json:"value"`
	Reached bool    `json:"reached"`
}

// judge compares what was measured with the goals.
func (r *report) judge() {
	ourName := relaybusContender().name
	for _, m := range r.Measurements {
		switch {
		case m.Case == publishName && m.System == ourName:
			r.atLeast("publish, "+m.Variant+": of the floor", r.ratio(m, "floor"), 0.8)
			r.atLeast("publish, "+m.Variant+": of the faster peer", r.overPeers(m), 1)
		case m.Case == drainName && m.System == ourName:
			r.atLeast("drain: of the faster peer", r.overPeers(m), 8)
		case m.Case == "latency" && m.System == ourName && strings.HasPrefix(m.Variant, "p50"):
			r.atMost("latency, "+m.Variant+" (ms)", m.Median, 2)
		case m.Case == "latency" && m.System == ourName:
			r.atMost("latency, "+m.Variant+" (ms)", m.Median, 10)
		case m.Case == "claim":
			r.judgeClaim(m)
		}
	}
}

// judgeClaim compares the largest backlog with the smallest.
func (r *report) judgeClaim(m *measurement) {
	sizes := r.Options.Backlogs
	largest := fmt.Sprintf("%d waiting", sizes[len(sizes)-1])
	smallest := fmt.Sprintf("%d waiting", sizes[0])
	if m.System != largest || largest == smallest {
		return
	}
	r.atMost(fmt.Sprintf("claim, %s: %s of %s", m.Variant, largest, smallest), r.ratio(m, smallest), 1.2)
}

// ratio is m by what another system has in the same variant; 0 without it. It
// is the median of the ratios of the rounds, in each of which both met the same
// weather; with different numbers of rounds, the ratio of the medians.
func (r *report) ratio(m *measurement, system string) float64 {
	other := r.find(m.Case, m.Variant, system)
	if other == nil || slices.Contains(other.Values, 0) {
		return 0
	}
	if len(m.Values) != len(other.Values) {
		return m.Median / other.Median
	}
	ratios := make([]float64, len(m.Values))
	for i := range ratios {
		ratios[i] = m.Values[i] / other.Values[i]
	}
	return median(ratios)
}

// overPeers is m by the faster of the peers; 0 without one.
func (r *report) overPeers(m *measurement) float64 {
	least := 0.0
	for _, peer := range []string{goqiteContender().name, riverContender().name, goqiteFewWorkers, riverManyWorkers} {
		if ratio := r.ratio(m, peer); ratio > 0 && (least == 0 || ratio < least) {
			least = ratio
		}
	}
	return least
}

func (r *report) atLeast(name string, value, want float64) {
	if value > 0 { // a contender that was left out proves nothing
		r.Goals = append(r.Goals, goal{name, fmt.Sprintf("at least %.4g", want), value, value >= want})
	}
}

func (r *report) atMost(name string, value, want float64) {
	if value > 0 {
		r.Goals = append(r.Goals, goal{name, fmt.Sprintf("at most %.4g", want), value, value <= want})
	}
}
