package transporttest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/transport"
)

// Backend is a transport under test and the broker behind it.
type Backend struct {
	// Open returns the broker of one case. What has to be cleaned up is
	// registered with t.
	Open func(t *testing.T) Broker
	// Bubble runs each case in a testing/synctest bubble, Open included, for
	// brokers that need no real input and output.
	Bubble bool
	// Wait is the longest that a step of a case may take, by default 30 s.
	Wait time.Duration
	// Short is the deadline of calls that are expected to run into it, by
	// default 300 ms. A broker that answers answers within it.
	Short time.Duration
	// Quiet is how long nothing must arrive where nothing is to arrive, by
	// default 300 ms.
	Quiet time.Duration
	// Skip names the cases that this backend can't run, as it lacks a fault.
	// One that it could run must not be in it.
	Skip []string
}

func (b Backend) withDefaults() Backend {
	if b.Wait == 0 {
		b.Wait = 30 * time.Second
	}
	if b.Short == 0 {
		b.Short = 300 * time.Millisecond
	}
	if b.Quiet == 0 {
		b.Quiet = 300 * time.Millisecond
	}
	return b
}

// Broker is the broker of one case. New, Link and Missing are required; a
// fault that can't be injected is nil.
type Broker struct {
	// New returns one more transport, not connected, as another process would
	// make it. The suite closes it.
	New func() transport.Transport
	// Link makes a destination, and returns the source at which everything
	// that is sent there arrives.
	Link func() (destination, source string)
	// Missing returns a name that is neither a destination nor a source.
	Missing func() string

	// Put adds a body that is no event to a destination.
	Put func(destination string, body []byte)
	// TooLarge is the size of a payload that the broker refuses, or 0 for none.
	TooLarge int
	// Cut breaks every connection once.
	Cut func()
	// Down breaks every connection and refuses new ones until Up.
	Down, Up func()
	// Freeze keeps the connections and answers nothing until Thaw.
	Freeze, Thaw func()
	// Remove deletes a source, with what is in it, and what leads there from
	// the destination. Restore makes both again.
	Remove, Restore func(destination, source string)
	// Refuse lets the broker refuse this sender at the destination, as missing
	// rights do.
	Refuse func(destination string)
	// Nack lets the broker take nothing at the destination until Accept, as a
	// full queue does.
	Nack, Accept func(destination string)
	// LoseConfirm lets the broker take the next message and breaks the
	// connection before its confirmation.
	LoseConfirm func()
}

// needs says which faults a case needs.
type needs func(Broker) bool

func nothing(Broker) bool { return true }

type testCase struct {
	name  string
	needs needs
	run   func(*suite)
}

// Cases returns the names of all cases.
func Cases() []string {
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return names
}

func cases() []testCase {
	return slices.Concat(sendCases(), receiveCases(), orderCases(), outageCases(), frozenCases(), lifecycleCases(), topologyCases())
}

// Run runs all cases as parallel subtests of t.
func Run(t *testing.T, b Backend) {
	t.Helper()
	b = b.withDefaults()
	for _, name := range b.Skip {
		if !slices.Contains(Cases(), name) {
			t.Errorf("Backend.Skip names %q, which is no case", name)
		}
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if b.Bubble {
				synctest.Test(t, func(t *testing.T) { b.run(t, c) })
			} else {
				b.run(t, c)
			}
		})
	}
}

func (b Backend) run(t *testing.T, c testCase) {
	t.Helper()
	broker := b.Open(t)
	able, skipped := c.needs(broker), slices.Contains(b.Skip, c.name)
	switch {
	case able && skipped:
		t.Fatal("Backend.Skip names this case, but the backend has the faults for it")
	case !able && !skipped:
		t.Fatal("the backend lacks a fault that this case needs, and Backend.Skip does not name it")
	case skipped:
		t.Skip("the backend lacks a fault that this case needs, as Backend.Skip says")
	}
	c.run(newSuite(t, b, broker))
}
