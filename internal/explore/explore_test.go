package explore_test

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/internal/explore"
)

// counter is a variable that two processes increase by reading and writing it
// in separate steps.
type counter struct {
	value     int
	processes []*explore.Process
	read      []int
	atomic    bool
	seed      maphash.Seed
}

func openCounter(seed maphash.Seed, atomic bool) func() explore.System {
	return func() explore.System {
		c := &counter{read: make([]int, 2), atomic: atomic, seed: seed}
		for i := range 2 {
			c.processes = append(c.processes, explore.Start(func(step func(string)) {
				step("read")
				c.read[i] = c.value
				if !c.atomic {
					step("write")
				}
				c.value = c.read[i] + 1
				c.read[i] = 0
			}))
		}
		return c
	}
}

func (c *counter) enabled() []*explore.Process {
	return slices.DeleteFunc(slices.Clone(c.processes), (*explore.Process).Done)
}

func (c *counter) Choices() []string {
	var names []string
	for _, p := range c.enabled() {
		names = append(names, p.Label())
	}
	return names
}

func (c *counter) Do(i int, _ bool) error {
	c.enabled()[i].Resume()
	return nil
}

func (c *counter) Fingerprint() uint64 {
	state := []int{c.value, c.read[0], c.read[1]}
	for _, p := range c.processes {
		state = append(state, len(p.Label()))
	}
	return maphash.Comparable(c.seed, [5]int(state))
}

func (c *counter) Finish() error {
	if c.value != 2 {
		return errors.New("an increase was lost")
	}
	return nil
}

func (c *counter) Close() {
	for _, p := range c.processes {
		p.Stop()
	}
}

func TestRunFindsALostUpdate(t *testing.T) {
	t.Parallel()
	open := openCounter(maphash.MakeSeed(), false)
	r := explore.Run(t.Context(), open)
	if r.Failure == nil {
		t.Fatal("no violation found")
	}
	if !strings.Contains(r.Failure.Error(), "an increase was lost\nschedule ") {
		t.Errorf("failure: %v", r.Failure)
	}
	schedule, err := explore.ParseSchedule(explore.FormatSchedule(r.Failure.Schedule))
	if err != nil || !slices.Equal(schedule, r.Failure.Schedule) {
		t.Fatalf("schedule: %v, %v", schedule, err)
	}
	trace, err := explore.Replay(open, schedule)
	if !errors.Is(r.Failure, r.Failure.Err) || err == nil || err.Error() != r.Failure.Err.Error() {
		t.Errorf("replay: %v, want %v", err, r.Failure.Err)
	}
	if !slices.Equal(trace, r.Failure.Trace) {
		t.Errorf("replay went %v, want %v", trace, r.Failure.Trace)
	}
}

func TestRunCoversEverything(t *testing.T) {
	t.Parallel()
	r := explore.Run(t.Context(), openCounter(maphash.MakeSeed(), true))
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
	// The start, one of the two has run, both have run.
	if !r.Complete || r.States != 4 || r.Depth != 2 {
		t.Errorf("covered %+v, want 4 states, complete, 2 deep", r)
	}
}

func TestRunEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := explore.Run(ctx, openCounter(maphash.MakeSeed(), true)); r.Complete || r.Executions != 1 {
		t.Errorf("covered %+v, want one execution, incomplete", r)
	}
}

func TestReplayRefusesAScheduleThatDoesNotFit(t *testing.T) {
	t.Parallel()
	open := openCounter(maphash.MakeSeed(), true)
	if _, err := explore.Replay(open, []int{0, 1}); err == nil {
		t.Error("a choice that does not exist was taken")
	}
	if _, err := explore.ParseSchedule("1,x"); err == nil {
		t.Error("a malformed schedule was read")
	}
}

func TestStopUnwindsAProcess(t *testing.T) {
	t.Parallel()
	var log []string
	p := explore.Start(func(step func(string)) {
		defer func() { log = append(log, "deferred") }()
		step("one")
		log = append(log, "one")
		step("two")
		log = append(log, "two")
	})
	p.Resume()
	if p.Label() != "two" || p.Done() {
		t.Errorf("stands before %q, done %t", p.Label(), p.Done())
	}
	p.Stop()
	if want := []string{"one", "deferred"}; !slices.Equal(log, want) || !p.Done() {
		t.Errorf("log %v, want %v; done %t", log, want, p.Done())
	}
}
