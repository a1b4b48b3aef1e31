package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// writeTables writes the report as Markdown.
func (r *report) writeTables(w io.Writer) error {
	var text strings.Builder
	m := r.Machine
	fmt.Fprintf(&text, "%s/%s, %d cores, %s; %d rounds, medians; took %s\n", m.OS, m.Arch, m.Cores, m.Go, r.Options.Rounds, r.Took)
	for _, module := range slices.Sorted(maps.Keys(m.Versions)) {
		fmt.Fprintf(&text, "- %s %s\n", module, m.Versions[module])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Database)) {
		fmt.Fprintf(&text, "- %s %s\n", name, r.Database[name])
	}
	for _, name := range distinct(r.Measurements, func(m *measurement) string { return m.Case }) {
		r.writeCase(&text, name)
	}
	r.writeSeries(&text)
	r.writeTableStates(&text)
	r.writeGoals(&text)
	for _, failure := range r.Failures {
		fmt.Fprintf(&text, "\n**failed**: %s\n", failure)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// writeCase writes one table: a line for each variant, a column for each
// system, and the ratio to the reference in brackets.
func (r *report) writeCase(text *strings.Builder, name string) {
	var list []*measurement
	for _, m := range r.Measurements {
		if m.Case == name {
			list = append(list, m)
		}
	}
	systems := distinct(list, func(m *measurement) string { return m.System })
	fmt.Fprintf(text, "\n### %s (%s)\n\n| |", name, list[0].Unit)
	for _, s := range systems {
		fmt.Fprintf(text, " %s |", s)
	}
	fmt.Fprintf(text, "\n| --- |%s\n", strings.Repeat(" --: |", len(systems)))
	for _, variant := range distinct(list, func(m *measurement) string { return m.Variant }) {
		fmt.Fprintf(text, "| %s |", variant)
		for _, s := range systems {
			fmt.Fprintf(text, " %s |", r.cell(name, variant, s, systems[0]))
		}
		text.WriteString("\n")
	}
}

// cell is a median, and its ratio to that of the first system.
func (r *report) cell(name, variant, system, first string) string {
	m := r.find(name, variant, system)
	if m == nil {
		return ""
	}
	figure := fmt.Sprintf("%.2f", m.Median)
	if m.Unit != "ms" {
		figure = thousands(int64(m.Median + 0.5))
	}
	if m.AtLeast {
		figure = "≥ " + figure
	}
	if ratio := r.ratio(m, first); system != first && ratio > 0 {
		figure += fmt.Sprintf(" (%.2f)", ratio)
	}
	return figure
}

func (r *report) writeGoals(text *strings.Builder) {
	if len(r.Goals) == 0 {
		return
	}
	text.WriteString("\n### goals\n\n| goal | wanted | measured | |\n| --- | --: | --: | --- |\n")
	for _, g := range r.Goals {
		verdict := "reached"
		if !g.Reached {
			verdict = "**missed**"
		}
		fmt.Fprintf(text, "| %s | %s | %.2f | %s |\n", g.Name, g.Want, g.Value, verdict)
	}
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// distinct returns the different values in the order in which they come.
func distinct(list []*measurement, of func(*measurement) string) (values []string) {
	for _, m := range list {
		if v := of(m); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}
