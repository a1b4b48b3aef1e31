// Command bench measures relaybus beside its peers, and beside the same writes
// made by hand, on one machine in one run: on SQLite beside goqite and River, on
// PostgreSQL beside River and watermill-sql.
//
// Everybody uses the same driver, the same database with the same durability
// (write-ahead log, synchronous=FULL; a private server with fsync on), the same
// number of workers, and the settings that its own documentation recommends. The
// rounds of the contenders are interleaved, so that whatever else the machine
// does meets all of them; what is printed are medians, and their ratios within
// the run. Each case counts afterwards whether every row is there and every
// delivery was handled, and fails the run if not.
//
//	go run ./bench                       # all cases on SQLite, some minutes
//	go run ./bench -db postgres          # all cases on PostgreSQL but pinned
//	go run ./bench -db postgres -cases pinned -pinned-time 5m
//	go run ./bench -quick                # a smoke test of every case
//	go run ./bench -cases drain -rounds 5 -json
//
// With -db postgres it starts a server of its own, as initdb makes it, unless
// RELAYBUS_POSTGRES_URL names one whose role may create databases.
package main
