package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestQuickRunMeasuresEveryCase(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-quick", "-json", "-dir", t.TempDir()}, &out, &progress); err != nil {
		t.Fatalf("run: %v\n%s", err, progress.String())
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("the output is no report: %v", err)
	}
	got := make(map[string]map[string]bool)
	for _, m := range r.Measurements {
		if !m.Checked {
			t.Errorf("%s, %s, %s: the rows were not counted", m.Case, m.Variant, m.System)
		}
		if m.Median <= 0 || len(m.Values) == 0 {
			t.Errorf("%s, %s, %s: median %v of %d values", m.Case, m.Variant, m.System, m.Median, len(m.Values))
		}
		if got[m.Case] == nil {
			got[m.Case] = make(map[string]bool)
		}
		got[m.Case][m.System] = true
	}
	for name, systems := range map[string][]string{
		"publish": {"floor", "relaybus", "goqite", "river"},
		"drain":   {"relaybus", "goqite", "river", goqiteFewWorkers, riverManyWorkers},
		"latency": {"relaybus", "goqite", "river", "goqite, polls every 1 ms", "river, polls every 10 ms"},
		"claim":   {"500 waiting", "2000 waiting", "500 waiting and 500 behind one blocked key"},
	} {
		for _, system := range systems {
			if !got[name][system] {
				t.Errorf("case %s has no figure of %s", name, system)
			}
		}
	}
	if len(r.Goals) == 0 {
		t.Error("no goal was judged")
	}
	for _, module := range measuredModules() {
		if r.Machine.Versions[module] == "" {
			t.Errorf("the version of %s is missing", module)
		}
	}
}

func TestBadFlagsAreReportedTogether(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	err := run(t.Context(), []string{"-cases", "drian", "-rounds", "0"}, &out, &progress)
	if err == nil || !strings.Contains(err.Error(), "drian") || !strings.Contains(err.Error(), "-rounds") {
		t.Errorf("run: %v; it should name the case and the rounds", err)
	}
	if out.Len() > 0 {
		t.Errorf("it wrote %q", out.String())
	}
}

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
