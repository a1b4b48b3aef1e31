// Package simulation has no code of its own: its tests run whole buses, several
// of them on one memory store, in virtual time, and break the calls to the store
// in every way that a network and a crash can.
//
// A run is planned by one seed: which handlers there are, what they do with
// each event, who publishes what and when, which call of which process fails
// and how, who crashes. The order in which goroutines run at one moment of the
// virtual time is the scheduler's own, so a seed gives the same plan again, and
// not always the same run.
//
//	go test -race ./internal/simulation                                 2,000 seeds
//	RELAYBUS_SEED=17 go test -race -run TestSimulation ./internal/simulation
//	RELAYBUS_SEED=17 RELAYBUS_TRACE=1 go test -v -run TestSimulation …  with every call of the store
//	RELAYBUS_SOAK=10m go test -race -timeout 0 -run TestSimulation ./internal/simulation
package simulation
