package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestQuickRunMeasuresEveryCase(t *testing.T) {
	t.Parallel()
	quickRun(t, []string{"-dir", t.TempDir()}, map[string][]string{
		"publish": {"floor", "relaybus", "goqite", "river"},
		"drain":   {"relaybus", "goqite", "river", goqiteFewWorkers, riverManyWorkers},
		"latency": {"relaybus", "goqite", "river", "goqite, polls every 1 ms", "river, polls every 10 ms"},
		"claim":   {"500 waiting", "2000 waiting", "500 waiting and 500 behind one blocked key"},
	})
}

func TestQuickRunOnPostgresMeasuresEveryCase(t *testing.T) {
	t.Parallel()
	r := quickRun(t, []string{"-db", "postgres", "-cases", "publish,drain,latency,claim,pinned"}, map[string][]string{
		"publish": {"floor", "relaybus", "relaybus-joined", "river", "watermill", "watermill-queue", "floor-pipelined"},
		"drain": {
			"relaybus", "river", "river, 2,000 workers", "watermill", "watermill, batches of 1000",
			"watermill-queue", "watermill-queue, batches of 1000", "floor",
		},
		"latency": {
			"relaybus", "relaybus-joined", "river", "river, cooldown 1 ms", "watermill", "watermill, polls every 1ms",
			"watermill-queue, polls every 1ms", "floor",
		},
		"claim":  {"500 waiting", "2000 waiting", "500 waiting and 500 behind one blocked key"},
		"pinned": {"relaybus", "relaybus, snapshot pinned"},
	})
	if fsync := r.Database["PostgreSQL fsync"]; fsync != "on" {
		t.Errorf("fsync is %q", fsync)
	}
	if len(r.Series) != 4 || len(r.Series[0].Values) < 2 {
		t.Errorf("two rates with and without a snapshot have %d series: %v", len(r.Series), r.Series)
	}
	runs := make(map[string]bool)
	for _, s := range r.Tables {
		if s.Table == "relaybus_deliveries" && s.Inserted > 0 && s.Inserted == s.Deleted && s.Heap > 0 && s.Indexes > 0 {
			runs[s.Run] = true
		}
	}
	if len(runs) != 4 {
		t.Errorf("the deliveries of %d of 4 runs have statistics: %+v", len(runs), r.Tables)
	}
}

// quickRun runs every case small, and wants a figure for each of the systems.
func quickRun(t *testing.T, args []string, want map[string][]string) *report {
	t.Helper()
	var out, progress bytes.Buffer
	if err := run(t.Context(), append([]string{"-quick", "-json"}, args...), &out, &progress); err != nil {
		t.Fatalf("run: %v\n%s", err, progress.String())
	}
	r := new(report)
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		t.Fatalf("the output is no report: %v", err)
	}
	got := make(map[string]map[string]bool)
	for _, m := range r.Measurements {
		if !m.Checked {
			t.Errorf("%s, %s, %s: the rows were not counted", m.Case, m.Variant, m.System)
		}
		// A short window can be over before the first delivery.
		if m.Median <= 0 && !strings.HasSuffix(m.Variant, "slowest window") || len(m.Values) == 0 {
			t.Errorf("%s, %s, %s: median %v of %d values", m.Case, m.Variant, m.System, m.Median, len(m.Values))
		}
		if got[m.Case] == nil {
			got[m.Case] = make(map[string]bool)
		}
		got[m.Case][m.System] = true
	}
	for name, systems := range want {
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
	return r
}

func TestBadFlagsAreReportedTogether(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	err := run(t.Context(), []string{"-cases", "drian,pinned", "-only", "watermill", "-rounds", "0"}, &out, &progress)
	if err == nil {
		t.Fatal("bad flags were taken")
	}
	for _, bad := range []string{"drian", "pinned", "watermill", "-rounds"} {
		if !strings.Contains(err.Error(), bad) {
			t.Errorf("run: %v; it should name %s", err, bad)
		}
	}
	if out.Len() > 0 {
		t.Errorf("it wrote %q", out.String())
	}
}

func TestBacklogsAreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args string
		want []int
	}{
		{"", []int{1_000, 100_000, 1_000_000}},
		{"-db postgres", []int{1_000, 1_000_000, 5_000_000}},
		{"-db postgres -backlogs 7,9", []int{7, 9}},
		{"-db postgres -quick", []int{500, 2_000}},
	} {
		o, err := parseOptions(strings.Fields(tc.args), io.Discard)
		if err != nil || !slices.Equal(o.backlogs, tc.want) {
			t.Errorf("%q: backlogs %v, %v, want %v", tc.args, o.backlogs, err, tc.want)
		}
	}
	if _, err := parseOptions([]string{"-db", "oracle"}, io.Discard); err == nil || !strings.Contains(err.Error(), "oracle") {
		t.Errorf("an unknown database: %v", err)
	}
}
