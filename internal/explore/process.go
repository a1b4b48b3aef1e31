package explore

import "iter"

// Process is a function that runs step by step: it stops before each step that
// it names, until it is told to go on. It is a coroutine, so that never two
// processes run at the same time.
type Process struct {
	next  func() (string, bool)
	stop  func()
	label string
	done  bool
}

// stopped is what unwinds a process that is stopped.
type stopped struct{}

// Start runs body up to its first step. body calls step before each of its
// steps with a name for it.
func Start(body func(step func(name string))) *Process {
	next, stop := iter.Pull(func(yield func(string) bool) {
		defer func() {
			if p := recover(); p != nil {
				if _, ok := p.(stopped); !ok {
					panic(p)
				}
			}
		}()
		body(func(name string) {
			if !yield(name) {
				panic(stopped{})
			}
		})
	})
	p := &Process{next: next, stop: stop}
	p.Resume()
	return p
}

// Resume runs the process through the step that it stands before.
func (p *Process) Resume() {
	label, ok := p.next()
	p.label, p.done = label, !ok
}

// Label names the step before which the process stands.
func (p *Process) Label() string { return p.label }

// Done says that the process has ended.
func (p *Process) Done() bool { return p.done }

// Stop ends the process where it stands, as a crash would: its deferred
// functions run, but none of its further steps.
func (p *Process) Stop() {
	p.stop()
	p.label, p.done = "", true
}
