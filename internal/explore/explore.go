// Package explore runs a system through all interleavings of its steps, within
// a small scope.
//
// A system is executed again for every schedule, from its start, one step at a
// time; nothing runs at the same time, so the same schedule always gives the
// same execution. States that were seen before are not explored again. It is
// meant for tests.
package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// System is one execution of what is explored.
type System interface {
	// Choices names what may happen next, in an order that depends on the state
	// alone. The execution is over when there is nothing.
	Choices() []string
	// Do lets choice i happen. An error is a violation. A replayed choice is one
	// that an earlier execution made in the same state without a violation: what
	// must be true after it need not be checked again.
	Do(i int, replayed bool) error
	// Fingerprint identifies the state: executions that reach the same
	// fingerprint must have the same future.
	Fingerprint() uint64
	// Finish checks what must be true in the end. It may change the system.
	Finish() error
	// Close ends whatever still runs.
	Close()
}

// ViolationError is a schedule that led to a violation.
type ViolationError struct {
	// Schedule has the choices, Trace their names.
	Schedule []int
	Trace    []string
	Err      error
}

// Error returns the violation with the schedule that leads to it.
func (f *ViolationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\nschedule %s", f.Err, FormatSchedule(f.Schedule))
	for i, name := range f.Trace {
		fmt.Fprintf(&b, "\n%4d. %s", i+1, name)
	}
	return b.String()
}

// Unwrap returns the violation.
func (f *ViolationError) Unwrap() error { return f.Err }

// Result is what an exploration covered.
type Result struct {
	// States is the number of different states, Executions that of schedules
	// run, Finals that of executions that ran to their end, Depth the length of
	// the longest.
	States, Executions, Finals, Depth int
	// Complete says that every state within the scope was reached.
	Complete bool
	// Failure is the first violation, or nil.
	Failure *ViolationError
}

// Run explores all executions of the systems that open returns, depth first,
// until the first violation, the end of the context, or the end.
func Run(ctx context.Context, open func() System) Result {
	var r Result
	seen := make(map[uint64]struct{})
	// path has the choices of the current execution, widths how many there were.
	var path, widths []int
	for {
		r.Executions++
		err := r.execute(open, &path, &widths, seen)
		r.States = len(seen)
		if err != nil {
			trace, _ := Replay(open, path)
			r.Failure = &ViolationError{Schedule: slices.Clone(path), Trace: trace, Err: err}
			return r
		}
		for len(path) > 0 && path[len(path)-1]+1 == widths[len(path)-1] {
			path, widths = path[:len(path)-1], widths[:len(path)-1]
		}
		if len(path) == 0 {
			r.Complete = true
			return r
		}
		if ctx.Err() != nil {
			return r
		}
		path[len(path)-1]++
	}
}

// execute runs the path and goes on with the first choices until the end or a
// state that was seen.
func (r *Result) execute(
	open func() System, path, widths *[]int, seen map[uint64]struct{},
) (err error) {
	s := open()
	defer s.Close()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	// All but the last choice of the path were made before.
	for depth := 0; depth+1 < len(*path); depth++ {
		if err := s.Do((*path)[depth], true); err != nil {
			return fmt.Errorf("the system is not deterministic: %w", err)
		}
	}
	for depth := max(len(*path)-1, 0); ; depth++ {
		choices := s.Choices()
		if depth < len(*path) {
			if len(choices) != (*widths)[depth] {
				return errors.New("the system is not deterministic: a schedule has other choices than before")
			}
		} else {
			state := s.Fingerprint()
			if _, ok := seen[state]; ok {
				return nil
			}
			seen[state] = struct{}{}
			if len(choices) == 0 {
				r.Finals++
				r.Depth = max(r.Depth, depth)
				return s.Finish()
			}
			*path, *widths = append(*path, 0), append(*widths, len(choices))
		}
		if err := s.Do((*path)[depth], false); err != nil {
			return err
		}
	}
}

// Replay runs one schedule, and then on with the first choices, and returns
// what happened. The error is the violation, or says that the schedule does not
// fit the system.
func Replay(open func() System, schedule []int) (trace []string, err error) {
	s := open()
	defer s.Close()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	for depth := 0; ; depth++ {
		choices := s.Choices()
		if len(choices) == 0 {
			return append(trace, "end"), s.Finish()
		}
		choice := 0
		if depth < len(schedule) {
			choice = schedule[depth]
		}
		if choice < 0 || choice >= len(choices) {
			return trace, fmt.Errorf("step %d of the schedule is %d, there are %d choices", depth+1, choice, len(choices))
		}
		trace = append(trace, choices[choice])
		if err := s.Do(choice, false); err != nil {
			return trace, err
		}
	}
}

// FormatSchedule returns the text that [ParseSchedule] reads.
func FormatSchedule(schedule []int) string {
	parts := make([]string, len(schedule))
	for i, choice := range schedule {
		parts[i] = strconv.Itoa(choice)
	}
	return strings.Join(parts, ",")
}

// ParseSchedule reads a list of choices such as "0,2,1".
func ParseSchedule(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var schedule []int
	for part := range strings.SplitSeq(text, ",") {
		choice, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("parse schedule: %w", err)
		}
		schedule = append(schedule, choice)
	}
	return schedule, nil
}
