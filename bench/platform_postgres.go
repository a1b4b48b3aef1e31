package main

import "fmt"

// Names of contenders and entries on PostgreSQL.
const (
	pipelinedName      = "floor-pipelined"
	joinedName         = "relaybus-joined"
	watermillName      = "watermill"
	watermillQueueName = "watermill-queue"
	riverBestLabel     = "river, 2,000 workers"
	// riverBestWorkers is what River's own benchmark uses, as it suits it best.
	riverBestWorkers = 2000
)

func watermillBest() string { return fmt.Sprintf("watermill, batches of %d", watermillBatch) }

// postgresPlatform is PostgreSQL: everybody has a database on one server.
func postgresPlatform() platform {
	floor := contender{name: floorName, open: openFloor}
	pipelined := contender{name: pipelinedName, open: openPipelinedFloor}
	relaybus := contender{name: relaybusName, ours: true, open: openPostgresRelaybus}
	joined := contender{name: joinedName, ours: true, open: openJoinedRelaybus}
	river := contender{name: riverName, open: openPostgresRiver}
	watermill := contender{name: watermillName, open: openWatermill}
	queue := contender{name: watermillQueueName, open: openWatermillQueue}
	return platform{
		name:       "postgres",
		open:       openServer,
		publishers: []contender{floor, relaybus, joined, river, watermill, queue, pipelined},
		// A topic of watermill-sql has one subscriber that handles one message after
		// the other: others would wait for its locks. The floor does the same.
		drainers: func(o options) []entry {
			return []entry{
				{relaybus, relaybus.name, o.workers},
				{river, river.name, o.workers},
				{river, riverBestLabel, riverBestWorkers},
				{watermill, watermill.name, 0},
				{watermill, watermillBest(), 1},
				{queue, queue.name, 0},
				{queue, fmt.Sprintf("watermill-queue, batches of %d", watermillBatch), 1},
				{floor, floor.name, 1},
			}
		},
		latencies: func(o options) []entry {
			return []entry{
				{relaybus, relaybus.name, 0},
				{joined, joined.name, 0},
				{river, river.name, 0},
				{river, "river, cooldown 1 ms", o.workers},
				{watermill, watermill.name, 0},
				{watermill, fmt.Sprintf("watermill, polls every %v", watermillPoll), 1},
				{queue, fmt.Sprintf("watermill-queue, polls every %v", watermillPoll), 1},
				{floor, floor.name, 0},
			}
		},
		openStore: openPostgresStore,
		backlogs:  []int{1_000, 1_000_000, 5_000_000},
		cases:     append(commonCases(), benchCase{name: pinnedName, run: pinnedCase, asked: true}),
		goals: goals{
			floorPart: 0.9,
			publish:   []rivals{{"River", []string{river.name}, 1}},
			drain: []rivals{
				{"River with the same number of workers", []string{river.name}, 3},
				{"River with 2,000 workers", []string{riverBestLabel}, 1},
				{"watermill-sql's default schema", []string{watermill.name, watermillBest()}, 1},
			},
			judged:     1_000_000,
			firstClaim: 2,
			nextClaim:  1.2,
			// Nothing: one in a hundred is what two equal runs differ by.
			lost: map[int]float64{2_000: 1, 20_000: 25},
		},
	}
}
