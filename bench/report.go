package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
)

// report is what a run brings.
type report struct {
	Machine      machine           `json:"machine"`
	Database     map[string]string `json:"database"`
	Options      reportOptions     `json:"options"`
	Took         string            `json:"took"`
	Measurements []*measurement    `json:"measurements"`
	Series       []series          `json:"series,omitempty"`
	Tables       []tableState      `json:"tables,omitempty"`
	Goals        []goal            `json:"goals"`
	// Failures are the errors of cases that did not come to their end.
	Failures []string `json:"failures,omitempty"`
}

// reportOptions are the options that make runs comparable.
type reportOptions struct {
	Database    string `json:"database"`
	Rounds      int    `json:"rounds"`
	PublishTime string `json:"publish_time"`
	Batch       int    `json:"batch"`
	Drain       int    `json:"drain"`
	DrainWindow string `json:"drain_window"`
	Workers     int    `json:"workers"`
	Rate        int    `json:"rate"`
	LatencyTime string `json:"latency_time"`
	Backlogs    []int  `json:"backlogs"`
	Blocked     int    `json:"blocked"`
	Claims      int    `json:"claims"`
	PinnedTime  string `json:"pinned_time"`
	PinnedRates []int  `json:"pinned_rates"`
}

// measurement is one figure of one contender, with the values of its rounds.
type measurement struct {
	Case    string    `json:"case"`
	Variant string    `json:"variant"`
	System  string    `json:"system"`
	Unit    string    `json:"unit"`
	Median  float64   `json:"median"`
	Values  []float64 `json:"values"`
	// AtLeast says that the values are only known to be no smaller, as not
	// everything had ended when the measurement did.
	AtLeast bool `json:"at_least,omitempty"`
	// Checked says that the database was counted afterwards and was right.
	Checked bool `json:"checked"`
}

func newReport(o options) *report {
	return &report{
		Machine: thisMachine(),
		Options: reportOptions{
			Database: o.platform.name,
			Rounds:   o.rounds, PublishTime: o.publishTime.String(), Batch: o.batch,
			Drain: o.drain, DrainWindow: o.drainWindow.String(), Workers: o.workers,
			Rate: o.rate, LatencyTime: o.latencyTime.String(),
			Backlogs: o.backlogs, Blocked: o.blocked, Claims: o.claims,
			PinnedTime: o.pinnedTime.String(), PinnedRates: o.pinnedRates,
		},
		Measurements: []*measurement{},
		Goals:        []goal{},
	}
}

// add adds the value of a round.
func (r *report) add(m measurement, value float64) {
	known := r.find(m.Case, m.Variant, m.System)
	if known == nil {
		known = &m
		r.Measurements = append(r.Measurements, known)
	}
	known.AtLeast = known.AtLeast || m.AtLeast
	known.Values = append(known.Values, value)
	known.Median = median(known.Values)
}

// find returns a measurement, or nil.
func (r *report) find(name, variant, system string) *measurement {
	i := slices.IndexFunc(r.Measurements, func(m *measurement) bool {
		return m.Case == name && m.Variant == variant && m.System == system
	})
	if i < 0 {
		return nil
	}
	return r.Measurements[i]
}

// checked notes that the rows of a measurement were counted.
func (r *report) checked(name, variant, system string) {
	if m := r.find(name, variant, system); m != nil {
		m.Checked = true
	}
}

// checkedAll is checked for all variants of a system.
func (r *report) checkedAll(name, system string) {
	for _, m := range r.Measurements {
		if m.Case == name && m.System == system {
			m.Checked = true
		}
	}
}

// saveJSON writes the report to a file.
func (r *report) saveJSON(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.writeJSON(f)
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
