// Command bench measures relaybus on SQLite beside its peers, goqite and River,
// and beside the same writes made by hand, on one machine in one run.
//
// Everybody uses the same SQLite driver, a write-ahead log, synchronous=FULL,
// the same number of workers, and the settings that its own documentation
// recommends. The rounds of the contenders are interleaved, so that whatever
// else the machine does meets all of them; what is printed are medians, and
// their ratios within the run. Each case counts afterwards whether every row is
// there and every delivery was handled, and fails the run if not.
//
//	go run ./bench                    # all cases, some minutes
//	go run ./bench -quick             # a smoke test of every case
//	go run ./bench -cases drain -rounds 5 -json
package main
