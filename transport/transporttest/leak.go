package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
)

// leaks finds the goroutines that a part of a case has started, by the label
// that goroutines inherit, so that tests that run beside it do not matter.
type leaks struct {
	suite *suite
	label string
}

const leakLabel = "transporttest"

// watch runs a part of the case that is to leave no goroutine.
func (s *suite) watch(part func()) leaks {
	l := leaks{suite: s, label: fmt.Sprintf("%s %d", s.Name(), s.ids.Add(1))}
	pprof.Do(s.Context(), pprof.Labels(leakLabel, l.label), func(context.Context) { part() })
	return l
}

// none checks that none is left. One that has just been joined may take a
// moment to disappear.
func (l leaks) none() {
	l.suite.Helper()
	var stacks string
	ctx := l.suite.short()
	for {
		if stacks = l.stacks(); stacks == "" {
			return
		}
		if !pause(ctx) {
			l.suite.Fatalf("goroutines are left:\n%s", stacks)
		}
	}
}

func (l leaks) stacks() string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		l.suite.Fatalf("goroutine profile: %v", err)
	}
	var left []string
	for block := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(block, fmt.Sprintf("%q:%q", leakLabel, l.label)) {
			left = append(left, block)
		}
	}
	return strings.Join(left, "\n\n")
}
