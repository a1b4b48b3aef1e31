package main

// sqlitePlatform is SQLite: everybody has a file.
func sqlitePlatform() platform {
	floor := contender{name: floorName, open: openSQLiteFloor}
	relaybus := contender{name: relaybusName, ours: true, open: openSQLiteRelaybus}
	goqite := contender{name: "goqite", open: openGoqite}
	river := contender{name: riverName, open: openSQLiteRiver}
	peers := []string{goqite.name, goqiteFewWorkers, river.name, riverManyWorkers}
	return platform{
		name:       "sqlite",
		open:       openFiles,
		publishers: []contender{floor, relaybus, goqite, river},
		// The peers again with the number of workers that suits them better: goqite
		// fetches one message at a time, so further workers are in each other's way;
		// River fetches as many jobs as it has workers, and completes them together.
		drainers: func(o options) []entry {
			return []entry{
				{relaybus, relaybus.name, o.workers},
				{goqite, goqite.name, o.workers},
				{river, river.name, o.workers},
				{goqite, goqiteFewWorkers, 1},
				{river, riverManyWorkers, 10 * o.workers},
			}
		},
		latencies: func(o options) []entry {
			return []entry{
				{relaybus, relaybus.name, 0},
				{goqite, goqite.name, 0},
				{river, river.name, 0},
				{goqite, "goqite, polls every 1 ms", goqitePollers},
				{river, "river, polls every 10 ms", o.workers},
			}
		},
		openStore: openSQLiteStore,
		backlogs:  []int{1_000, 100_000, 1_000_000},
		cases:     commonCases(),
		goals: goals{
			floorPart:  0.8,
			publish:    []rivals{{"the faster peer", peers, 1}},
			drain:      []rivals{{"the faster peer", peers, 8}},
			firstClaim: 1.2,
			nextClaim:  1.2,
		},
	}
}

// Names of entries on SQLite.
const (
	goqiteFewWorkers = "goqite, 1 worker"
	riverManyWorkers = "river, 10 × the workers"
)
