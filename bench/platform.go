package main

import (
	"context"
	"slices"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// platform is a database, and who is measured on it.
type platform struct {
	name string
	// open makes the place where the databases of the run are.
	open func(ctx context.Context, o options) (site, error)
	// publishers take part in the publish case; the first is what the others are
	// compared with, as it is in the other cases.
	publishers []contender
	drainers   func(o options) []entry
	latencies  func(o options) []entry
	// openStore opens the store of relaybus without a bus.
	openStore func(ctx context.Context, address string) (*claimStore, error)
	// backlogs are the sizes of the claim case unless the options have others.
	backlogs []int
	cases    []benchCase
	goals    goals
}

func platforms() []platform { return []platform{sqlitePlatform(), postgresPlatform()} }

// site is where the databases of a run are.
type site interface {
	// about describes the database, for the report.
	about(ctx context.Context) (map[string]string, error)
	// create makes an empty database and returns its address.
	create(ctx context.Context, name string) (address string, err error)
	// rest brings a database that was just filled, and that nobody has open, into
	// the state that it would come to by itself.
	rest(ctx context.Context, address string) error
	// clone makes a copy of a database that nobody has open.
	clone(ctx context.Context, address string) (copied string, err error)
	// remove deletes a database that nobody has open.
	remove(ctx context.Context, address string) error
	// processorTime returns what counts the processor time of the processes of the
	// database, or nil when there are none, or they don't tell.
	processorTime() func() time.Duration
	close(ctx context.Context) error
}

// claimStore is a store for the claim case.
type claimStore struct {
	store.Store

	close func() error
	// add stores events that all have deliveries, as fast as it goes.
	add func(ctx context.Context, events []store.NewEvent) error
}

// benchCase is something that is measured.
type benchCase struct {
	name string
	run  func(ctx context.Context, b *bench) error
	// asked says that it runs only when it is asked for by name.
	asked bool
}

func commonCases() []benchCase {
	return []benchCase{
		{name: "publish", run: publishCase},
		{name: "drain", run: drainCase},
		{name: "latency", run: latencyCase},
		{name: "claim", run: claimCase},
	}
}

// contenders returns the names of all that take part in a case.
func (p platform) contenders(o options) (names []string) {
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, c := range p.publishers {
		add(c.name)
	}
	for _, e := range slices.Concat(p.drainers(o), p.latencies(o)) {
		add(e.name)
	}
	return names
}
