// Package pgserver runs real PostgreSQL servers for tests and benchmarks: a [Server] of its own, or a [Cluster] that a
// test process shares, a [PgBouncer] in front of one, and a [Proxy] that makes the network fail. It knows no SQL and no
// driver: its callers create databases with the driver that they test.
//
// The programs come from the machine. PostgreSQL is looked for in the directory that RELAYBUS_POSTGRES_BIN names, then
// in PATH, then in /usr/lib/postgresql, where Debian keeps it; pgbouncer is the file that RELAYBUS_PGBOUNCER_BIN names,
// or in PATH, or /usr/sbin/pgbouncer. They refuse to run as root, so for root they run as the user postgres, or nobody.
//
// Nothing is left behind: Close ends the programs and removes their directories. On Linux they also end when the
// process that started them is killed, and the next start removes its directories.
package pgserver
