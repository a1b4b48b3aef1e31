package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestReportComparesWithinARun(t *testing.T) {
	t.Parallel()
	o := defaultOptions()
	o.platform, o.backlogs = sqlitePlatform(), []int{1_000, 1_000_000}
	r := newReport(o)
	for _, m := range []struct {
		name, variant, system, unit string
		values                      []float64
	}{
		{"publish", "v", "floor", "events/s", []float64{100, 4000, 5000}},
		{"publish", "v", "relaybus", "events/s", []float64{3000, 3000, 9}},
		{"publish", "v", "goqite", "events/s", []float64{3200}},
		{"publish", "v", "river", "events/s", []float64{1000}},
		{"drain", "v", "relaybus", "deliveries/s", []float64{40_000}},
		{"drain", "v", "river", "deliveries/s", []float64{2_000}},
		{"claim", "c", "1000 waiting", "ms", []float64{2}},
		{"claim", "c", "1000000 waiting", "ms", []float64{3}},
	} {
		for _, v := range m.values {
			r.add(measurement{Case: m.name, Variant: m.variant, System: m.system, Unit: m.unit}, v)
		}
	}
	r.judge(sqlitePlatform().goals)
	want := map[string]struct {
		value   float64
		reached bool
	}{
		"publish, v: of the floor":                  {0.75, false},
		"publish, v: of the faster peer":            {0.9375, false},
		"drain: of the faster peer":                 {20, true},
		"claim, c: 1000000 waiting of 1000 waiting": {1.5, false},
	}
	for _, g := range r.Goals {
		w, ok := want[g.Name]
		if !ok || w.value != g.Value || w.reached != g.Reached {
			t.Errorf("goal %q: %v, reached %v", g.Name, g.Value, g.Reached)
		}
		delete(want, g.Name)
	}
	if len(want) > 0 {
		t.Errorf("goals are missing: %v", want)
	}
	var text strings.Builder
	if err := r.writeTables(&text); err != nil {
		t.Fatal(err)
	}
	for _, cell := range []string{"| v | 4,000 | 3,000 (0.75) | 3,200 (0.80) | 1,000 (0.25) |", "| c | 2.00 | 3.00 (1.50) |", "**missed**"} {
		if !strings.Contains(text.String(), cell) {
			t.Errorf("the tables lack %q:\n%s", cell, text.String())
		}
	}
}

func TestReportJudgesPostgresByItsOwnGoals(t *testing.T) {
	t.Parallel()
	o := defaultOptions()
	o.platform, o.backlogs = postgresPlatform(), []int{1_000, 1_000_000, 5_000_000}
	r := newReport(o)
	for _, m := range []struct {
		name, variant, system string
		value                 float64
	}{
		{"publish", "v", "floor", 1000},
		{"publish", "v", "relaybus", 900},
		{"publish", "v", "river", 600},
		{"drain", "v", "relaybus", 30_000},
		{"drain", "v", "river", 12_000},
		{"drain", "v", "river, 2,000 workers", 20_000},
		{"drain", "v", "watermill", 2_000},
		{"drain", "v", "watermill, batches of 1000", 40_000},
		{"claim", "first claim of an owner, limit 10", "1000 waiting", 1},
		{"claim", "first claim of an owner, limit 10", "1000000 waiting", 1.5},
		{"claim", "first claim of an owner, limit 10", "5000000 waiting", 9},
		{"claim", "next claim of an owner, limit 10", "1000 waiting", 1},
		{"claim", "next claim of an owner, limit 10", "1000000 waiting", 1.5},
		{"pinned", wholeRun(2_000), "relaybus", 2_000},
		{"pinned", wholeRun(2_000), "relaybus, snapshot pinned", 2_010},
		{"pinned", wholeRun(20_000), "relaybus", 16_000},
		{"pinned", wholeRun(20_000), "relaybus, snapshot pinned", 8_000},
		{"pinned", lastFifth(20_000), "relaybus, snapshot pinned", 4_000},
	} {
		r.add(measurement{Case: m.name, Variant: m.variant, System: m.system, Unit: "x"}, m.value)
	}
	r.judge(o.platform.goals)
	got := make(map[string]string)
	for _, g := range r.Goals {
		got[g.Name] = fmt.Sprintf("%.2f %v", g.Value, g.Reached)
	}
	want := map[string]string{
		"publish, v: of the floor":                                                  "0.90 true",
		"publish, v: of River":                                                      "1.50 true",
		"drain: of River with the same number of workers":                           "2.50 false",
		"drain: of River with 2,000 workers":                                        "1.50 true",
		"drain: of watermill-sql's default schema":                                  "0.75 false",
		"claim, first claim of an owner, limit 10: 1000000 waiting of 1000 waiting": "1.50 true",
		"claim, next claim of an owner, limit 10: 1000000 waiting of 1000 waiting":  "1.50 false",
		"pinned snapshot, 2,000/s wanted, 2,000/s reached without: lost (%)":        "-0.50 true",
		"pinned snapshot, 20,000/s wanted, 16,000/s reached without: lost (%)":      "50.00 false",
	}
	if !maps.Equal(got, want) {
		t.Errorf("goals: %v\nwant: %v", got, want)
	}
}
