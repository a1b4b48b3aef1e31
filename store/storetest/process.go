package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func processCases(backend Backend) []testCase {
	points := backend.CrashPoints
	return []testCase{
		{name: "S1 F17 many processes set up an empty database at once", needs: needsProcesses, run: processesSetUp},
		{name: "S1 F17 a setup that is killed can be run again", needs: needsProcesses, run: func(b *bed) {
			for _, point := range append([]string{"before setup", "after setup"}, points.Setup...) {
				b.t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) { setupKilled(newBedless(t, backend), point) })
			}
		}},
		{name: "S2 F22 a publisher that is killed", needs: all(needsProcesses, needsEffects), run: func(b *bed) {
			for _, point := range append([]string{"before publish", "in publish", "after publish"}, points.Publish...) {
				b.t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) { publisherKilled(newBed(t, backend), point) })
			}
		}},
		{name: "S8 S9 F22 a worker that is killed", needs: needsProcesses, run: func(b *bed) {
			own := []string{"before claim", "after claim", "before settle", "after settle", "before relinquish"}
			for _, point := range slices.Concat(own, points.Work) {
				b.t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) { workerKilled(t, backend, point, false) })
			}
		}},
		{name: "B12 F22 a transactional worker that is killed", needs: all(needsProcesses, needsEffects), run: func(b *bed) {
			own := []string{"before settle", "in settle", "in transaction", "after settle"}
			for _, point := range slices.Concat(own, points.Publish) {
				b.t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) { workerKilled(t, backend, point, true) })
			}
		}},
		{name: "S8 F22 a takeover that is killed charges once", needs: needsProcesses, run: func(b *bed) {
			for _, point := range slices.Concat([]string{"before claim", "after claim"}, points.Takeover) {
				b.t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) { takeoverKilled(newBed(t, backend), point) })
			}
		}},
		{name: "F48 F45 processes work side by side", needs: needsProcesses, run: processesWork},
		{name: "F16 I5 a stopped process comes back after the takeover", needs: all(needsProcesses, needsEffects), run: processComesBack},
	}
}

// newBedless is a bed whose database is not set up.
func newBedless(t *testing.T, backend Backend) *bed {
	t.Helper()
	b := &bed{t: t, backend: backend, db: backend.New(t), now: epoch()}
	b.s = b.open()
	return b
}

// child is a worker process that has ended.
type child struct {
	lines  []string
	killed bool
}

// said returns what the child said with this first word, without it.
func (c child) said(word string) []string {
	var found []string
	for _, line := range c.lines {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			found = append(found, rest)
		}
	}
	return found
}

var errNotPassed = errors.New("never passed the crash point")

func (b *bed) command(s script) *exec.Cmd {
	b.t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		b.t.Fatalf("script: %v", err)
	}
	command := b.db.Command(b.t)
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, workerVariable+"="+string(text))
	return command
}

// start runs a worker process to its end. One that should be killed must be.
func (b *bed) start(s script) (child, error) {
	command := b.command(s)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	err := command.Run()
	c := child{lines: strings.Split(strings.TrimSpace(out.String()), "\n")}
	done := slices.Contains(c.lines, "done")
	var exit *exec.ExitError
	switch {
	case err == nil && s.Crash == "" && done:
		return c, nil
	case err == nil && s.Crash != "":
		return c, fmt.Errorf("the worker: %w %q, time %d", errNotPassed, s.Crash, s.CrashAt)
	case errors.As(err, &exit) && exit.ExitCode() == -1 && s.Crash != "":
		c.killed = true
		return c, nil
	default:
		return c, fmt.Errorf("worker %s: %w: %s", s.Role, err, problems.String())
	}
}

func (b *bed) mustStart(s script) child {
	b.t.Helper()
	c, err := b.start(s)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func processesSetUp(b *bed) {
	const processes = 8
	b = newBedless(b.t, b.backend)
	errs := make([]error, processes)
	var group sync.WaitGroup
	for i := range processes {
		group.Go(func() { _, errs[i] = b.start(script{Role: "setup"}) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("setup by %d processes at once: %v", processes, err)
	}
	b.publish(b.event("e", "k", "h"))
	b.complete("w", b.one("w", "h", "e"))
}

func setupKilled(b *bed, point string) {
	b.mustStart(script{Role: "setup", Crash: point, CrashAt: 1})
	b.mustStart(script{Role: "setup"})
	b.publish(b.event("e", "k", "h"))
	b.complete("w", b.one("w", "h", "e"))
	if err := b.s.Setup(b.ctx()); err != nil {
		b.t.Fatalf("setup: %v", err)
	}
}

func publisherKilled(b *bed, point string) {
	s := script{Role: "publish", Prefix: "e", Events: 8, Keys: 2, Handlers: []string{"h"}, Now: b.now, Crash: point, CrashAt: 5}
	c := b.mustStart(s)
	published := c.said("published")
	effects := b.db.Effects(b.t, b.s)
	var events []string
	for i := range s.Events {
		if _, _, err := b.s.GetEvent(b.ctx(), numberedName("e", i)); err == nil {
			events = append(events, numberedName("e", i))
		}
	}
	if !slices.Equal(effects, events) {
		b.t.Errorf("the rows are %v, and the events %v", effects, events)
	}
	// What was reported is there; at most the one under way is there, too.
	if len(events) < len(published) || len(events) > len(published)+1 || !slices.Equal(events[:len(published)], published) {
		b.t.Errorf("reported %v, and there are %v", published, events)
	}
	// Publishing all of them again fills the gap, and doubles nothing.
	again := s
	again.Crash = ""
	b.mustStart(again)
	w := b.mustStart(script{Role: "work", Owner: "w", Handlers: []string{"h"}, Batch: 100, Now: b.now, Lease: term})
	if got := w.said("completed"); len(got) != s.Events {
		b.t.Errorf("%d deliveries of %d events were completed", len(got), s.Events)
	}
	b.counts(0, 0, 0)
}

// workerKilled kills a worker in the middle of its work, at the second passage
// of the point if there is one; another worker of the same name finishes the
// work after the lease.
func workerKilled(t *testing.T, backend Backend, point string, transactional bool) {
	t.Helper()
	const events = 24
	handlers := []string{"h", "g"}
	var (
		b    *bed
		s    script
		dead child
		err  error
	)
	for _, passage := range []int{2, 1} {
		b = newBed(t, backend)
		b.mustStart(script{Role: "publish", Prefix: "e", Events: events, Keys: 3, Handlers: handlers, Now: b.now})
		s = script{
			Role: "work", Owner: "w", Handlers: handlers, Batch: 6, Transactional: transactional, Now: b.now, Lease: term,
			Crash: point, CrashAt: passage,
		}
		if dead, err = b.start(s); !errors.Is(err, errNotPassed) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	effects := 0
	if transactional {
		effects = events // Those of the publisher.
	}
	// While its lease lives, nobody gets what it ran, not even under its name.
	ran := map[string]bool{}
	for _, line := range dead.said("runs") {
		ran[delivery(line)] = true
	}
	s.Crash = ""
	early := s
	early.Batch = 1
	early.Now = b.now.Add(term / 2)
	s.Now = b.now.Add(2*term + time.Second)
	attempts := map[string][]string{}
	for _, c := range []child{dead, b.mustStart(early), b.mustStart(s)} {
		for _, line := range c.said("runs") {
			attempts[delivery(line)] = append(attempts[delivery(line)], line[strings.LastIndex(line, " ")+1:])
		}
		if got := c.said("lost"); len(got) != 0 {
			b.t.Errorf("a worker lost %v", got)
		}
	}
	b.now = s.Now
	b.counts(0, 0, 0)
	if len(attempts) != events*len(handlers) {
		b.t.Errorf("%d of %d deliveries ran", len(attempts), events*len(handlers))
	}
	inFlight := 0
	for name, list := range attempts {
		switch {
		case slices.Equal(list, []string{"1"}):
		case slices.Equal(list, []string{"1", "2"}) && ran[name], slices.Equal(list, []string{"2"}):
			// It ran when the worker died, or was claimed by a claim that never returned.
			inFlight++
		default:
			b.t.Errorf("%s ran in the attempts %v", name, list)
		}
	}
	if inFlight > s.Batch {
		b.t.Errorf("%d deliveries ran again or were charged; a claim takes %d", inFlight, s.Batch)
	}
	if !transactional {
		return
	}
	got := b.db.Effects(b.t, b.s)[effects:]
	slices.Sort(got)
	if len(got) != events*len(handlers) || len(slices.Compact(got)) != events*len(handlers) {
		b.t.Errorf("%d effects of %d deliveries: %v", len(got), events*len(handlers), got)
	}
}

// delivery is the event and the handler of a line that a worker said.
func delivery(line string) string {
	words := strings.Fields(line)
	return words[0] + "/" + words[1]
}

func takeoverKilled(b *bed, point string) {
	b.publish(append(b.numbered("e", 5, "", "h"), b.numbered("k", 3, "k", "h")...)...)
	work := script{Role: "work", Handlers: []string{"h"}, Batch: 100, Now: b.now, Lease: term}
	first := work
	first.Owner, first.Crash, first.CrashAt = "first", "after claim", 1
	if got := b.mustStart(first).said("runs"); len(got) != 6 {
		b.t.Fatalf("the first worker ran %v, want 6 deliveries", got)
	}
	second := work
	second.Owner, second.Crash, second.CrashAt, second.Now = "second", point, 1, b.now.Add(term+time.Millisecond)
	claimed := len(b.mustStart(second).said("runs"))
	// Attempts: one for the first worker, and one for the second if it ran them.
	b.now = second.Now.Add(term + time.Millisecond)
	got := b.claim("third", plenty, "h")
	if len(got) != 6 {
		b.t.Fatalf("claimed %v, want 6 deliveries", names(got))
	}
	lost := got[0].Lost
	if lost < 1 || lost > 2 || (claimed > 0) && lost != 2 {
		b.t.Errorf("%d lost attempts after two dead workers", lost)
	}
	for _, c := range got {
		if c.Lost != lost || c.Attempt != lost+1 {
			b.t.Errorf("%s: attempt %d with %d lost, and others with %d", c.Event.ID, c.Attempt, c.Lost, lost)
		}
	}
	if point == "before claim" && lost != 1 {
		b.t.Errorf("%d lost attempts, but only one worker ran them", lost)
	}
	b.complete("third", got...)
	b.complete("third", b.one("third", "h", "k-1"))
	b.complete("third", b.one("third", "h", "k-2"))
	b.counts(0, 0, 0)
}

// processesWork: publishers and workers in processes of their own, without a
// fault: no error reaches anybody, and each delivery runs once.
func processesWork(b *bed) {
	const publishers, workers, events = 3, 3, 40
	children := make([]child, publishers+workers)
	errs := make([]error, publishers+workers)
	var group sync.WaitGroup
	for i := range publishers {
		group.Go(func() {
			children[i], errs[i] = b.start(script{
				Role: "publish", Prefix: numberedName("p", i), Events: events, Keys: 3, Handlers: []string{"h"}, Now: b.now,
			})
		})
	}
	for i := range workers {
		group.Go(func() {
			children[publishers+i], errs[publishers+i] = b.start(script{
				Role: "work", Owner: "w", Handlers: []string{"h"}, Batch: 5, Now: b.now, Lease: term,
			})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("processes side by side: %v", err)
	}
	children = append(children, b.mustStart(script{
		Role: "work", Owner: "w", Handlers: []string{"h"}, Batch: 5, Now: b.now, Lease: term,
	}))
	runs := map[string]int{}
	for _, c := range children {
		for _, line := range c.said("runs") {
			runs[delivery(line)]++
		}
	}
	if len(runs) != publishers*events {
		b.t.Errorf("%d of %d deliveries ran", len(runs), publishers*events)
	}
	for name, n := range runs {
		if n != 1 {
			b.t.Errorf("%s ran %d times", name, n)
		}
	}
	b.counts(0, 0, 0)
}

// processComesBack stops a worker between its effect and its completion until
// another one has taken over and completed. What it then does changes nothing.
func processComesBack(b *bed) {
	b.publish(b.event("e", "k", "h"))
	point := "before settle"
	if !b.s.Features().SerialTransactions {
		point = "in settle"
	}
	command := b.command(script{
		Role: "work", Owner: "w", Handlers: []string{"h"}, Batch: 1, Transactional: true, Now: b.now, Lease: term,
		Crash: point, CrashAt: 1, Hang: true,
	})
	in, err := command.StdinPipe()
	if err != nil {
		b.t.Fatalf("pipe: %v", err)
	}
	hangs := make(chan struct{})
	out := &lineWatcher{word: "hangs", seen: hangs}
	command.Stdout, command.Stderr = out, os.Stderr
	if err := command.Start(); err != nil {
		b.t.Fatalf("start: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case <-hangs:
	case err := <-ended:
		b.t.Fatalf("the worker ended early: %v: %s", err, out.text())
	}
	b.pass(term + time.Millisecond)
	heirs := b.claim("heir", plenty, "h")
	b.wantEvents(heirs, "e")
	if err := b.runInTx(b.s, "heir", heirs[0]); err != nil {
		b.t.Fatalf("the heir: %v", err)
	}
	if err := in.Close(); err != nil {
		b.t.Fatalf("wake the worker: %v", err)
	}
	if err := <-ended; err != nil {
		b.t.Fatalf("the worker: %v: %s", err, out.text())
	}
	if !strings.Contains(out.text(), "lost e h") {
		b.t.Errorf("the worker was not told that it had lost its lease: %s", out.text())
	}
	if got := b.db.Effects(b.t, b.s); !slices.Equal(got, []string{"e"}) {
		b.t.Errorf("the effects are %v, want that of the heir", got)
	}
	b.counts(0, 0, 0)
}

// lineWatcher keeps what a process says, and tells when it has said a word.
type lineWatcher struct {
	mu   sync.Mutex
	all  []byte
	word string
	seen chan struct{}
	told bool
}

func (w *lineWatcher) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text...)
	if !w.told && bytes.Contains(w.all, []byte(w.word)) {
		w.told = true
		close(w.seen)
	}
	return len(text), nil
}

func (w *lineWatcher) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.all)
}
