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

// goals are what a platform promises.
type goals struct {
	// floorPart is the least part of the floor's rate of publishing.
	floorPart float64
	publish   []rivals
	drain     []rivals
	// judged is the size of the backlog that is compared with the smallest; the
	// largest unless there is one of that size.
	judged                int
	firstClaim, nextClaim float64
	// lost is the part of the throughput in percent that may be lost beside an old
	// snapshot, by the rate.
	lost map[int]float64
}

// rivals are entries of which the fastest is to be surpassed so many times.
type rivals struct {
	name   string
	labels []string
	times  float64
}

// judge compares what was measured with the goals.
func (r *report) judge(g goals) {
	for _, m := range r.Measurements {
		switch {
		case m.Case == publishName && m.System == relaybusName:
			r.atLeast("publish, "+m.Variant+": of the floor", r.ratio(m, floorName), g.floorPart)
			r.judgeRivals("publish, "+m.Variant, m, g.publish)
		case m.Case == drainName && m.System == relaybusName:
			r.judgeRivals("drain", m, g.drain)
		case m.Case == latencyName && m.System == relaybusName && strings.HasPrefix(m.Variant, "p50"):
			r.atMost("latency, "+m.Variant+" (ms)", m.Median, 2)
		case m.Case == latencyName && m.System == relaybusName:
			r.atMost("latency, "+m.Variant+" (ms)", m.Median, 10)
		case m.Case == claimName:
			r.judgeClaim(m, g)
		case m.Case == pinnedName:
			r.judgeLoss(m, g)
		}
	}
}

func (r *report) judgeRivals(name string, m *measurement, list []rivals) {
	for _, rival := range list {
		r.atLeast(name+": of "+rival.name, r.overFastest(m, rival.labels), rival.times)
	}
}

// judgeClaim compares a large backlog with the smallest.
func (r *report) judgeClaim(m *measurement, g goals) {
	sizes := r.Options.Backlogs
	size := sizes[len(sizes)-1]
	if slices.Contains(sizes, g.judged) {
		size = g.judged
	}
	if m.System != waitingName(size) || size == sizes[0] {
		return
	}
	want := g.nextClaim
	if strings.HasPrefix(m.Variant, firstClaimName) {
		want = g.firstClaim
	}
	r.atMost(fmt.Sprintf("claim, %s: %s of %s", m.Variant, m.System, waitingName(sizes[0])), r.ratio(m, waitingName(sizes[0])), want)
}

// judgeLoss compares the rate beside an old snapshot with that without one.
func (r *report) judgeLoss(m *measurement, g goals) {
	for rate, want := range g.lost {
		free := r.find(m.Case, m.Variant, relaybusName)
		if m.System != pinnedLabel(relaybusName) || m.Variant != wholeRun(rate) || free == nil {
			continue
		}
		lost := 100 * (1 - m.Median/free.Median)
		r.Goals = append(r.Goals, goal{
			fmt.Sprintf("pinned snapshot, %s/s wanted, %s/s reached without: lost (%%)", thousands(int64(rate)), thousands(int64(free.Median+0.5))),
			fmt.Sprintf("at most %.4g", want), lost, lost <= want,
		})
	}
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

// overFastest is m by the fastest of the others; 0 without one.
func (r *report) overFastest(m *measurement, others []string) float64 {
	least := 0.0
	for _, other := range others {
		if ratio := r.ratio(m, other); ratio > 0 && (least == 0 || ratio < least) {
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
