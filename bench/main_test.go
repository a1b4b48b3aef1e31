package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestFailedCaseKeepsWhatOthersMeasured(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	o := defaultOptions()
	o.dir = t.TempDir()
	o.platform = sqlitePlatform()
	o.backlogs = o.platform.backlogs
	o.platform.cases = []benchCase{
		{name: "one", run: func(context.Context, *bench) error { return broken }},
		{name: "two", run: func(_ context.Context, b *bench) error {
			b.report.add(measurement{Case: "two", Variant: "v", System: "s", Unit: "ms"}, 7)
			return nil
		}},
		{name: "three", asked: true, run: func(context.Context, *bench) error {
			t.Error("a case ran that nobody has asked for")
			return nil
		}},
	}
	r, err := measure(t.Context(), o, io.Discard)
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if r == nil || r.find("two", "v", "s") == nil {
		t.Fatalf("what the second case measured is missing: %+v", r)
	}
	if len(r.Failures) != 1 || !strings.Contains(r.Failures[0], "one") || !strings.Contains(r.Failures[0], "broken") {
		t.Errorf("failures %v", r.Failures)
	}
	var text strings.Builder
	if err := r.writeTables(&text); err != nil || !strings.Contains(text.String(), "**failed**: case one: broken") {
		t.Errorf("%v; the tables don't tell of the failure:\n%s", err, text.String())
	}
}

func TestCasesThatAreAskedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args, want string
	}{
		{"-db postgres", "publish,drain,latency,claim"},
		{"-db postgres -cases pinned", "pinned"},
		{"-cases drain,claim", "drain,claim"},
	} {
		o, err := parseOptions(strings.Fields(tc.args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range o.platform.cases {
			if o.chosen(c) {
				got = append(got, c.name)
			}
		}
		if want := strings.Split(tc.want, ","); !slices.Equal(got, want) {
			t.Errorf("%q runs %v, want %v", tc.args, got, want)
		}
	}
}
