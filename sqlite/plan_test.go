package sqlite_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/sqlite"
)

// F12: hot statements read by the intended index, whatever the statistics say.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, statistics := range []string{"none", "empty tables", "misleading"} {
		t.Run(statistics, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, sqlite.Config{})
			switch statistics {
			case "empty tables":
				b.exec("ANALYZE")
			case "misleading":
				// One key and one lane for everything make every index look useless.
				for range 3 {
					b.publish(b.events(40, "hot", "h")...)
				}
				b.claim(50, "h")
				b.exec("ANALYZE")
			}
			for name, hot := range sqlite.Hot(b.s) {
				checkPlan(t, b, name, hot.Text, hot.Index)
			}
		})
	}
}

func checkPlan(t *testing.T, b *bed, name, text string, want []string) {
	t.Helper()
	steps := b.texts("EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(regexp.MustCompile(`\?\d+`).ReplaceAllStringFunc(text, firstOnly()), "?"))...)
	plan := strings.Join(steps, "\n")
	for _, index := range want {
		if !strings.Contains(plan, index) {
			t.Errorf("%s: the plan lacks %q:\n%s", name, index, plan)
		}
	}
	if strings.Contains(plan, "TEMP B-TREE") && !strings.Contains(text, "UNION SELECT") {
		t.Errorf("%s: the plan sorts:\n%s", name, plan)
	}
	for _, step := range steps {
		if !strings.HasPrefix(step, "SCAN ") || strings.Contains(step, "USING INDEX") || strings.Contains(step, "USING COVERING INDEX") {
			continue
		}
		switch step {
		case "SCAN hop", "SCAN (subquery-1)", "SCAN j VIRTUAL TABLE INDEX 1:", "SCAN CONSTANT ROW":
		default:
			t.Errorf("%s: the plan scans:\n%s", name, plan)
		}
	}
}

// firstOnly keeps the first of each numbered parameter, so that they can be counted.
func firstOnly() func(string) string {
	seen := map[string]bool{}
	return func(parameter string) string {
		if seen[parameter] {
			return ""
		}
		seen[parameter] = true
		return "?"
	}
}
