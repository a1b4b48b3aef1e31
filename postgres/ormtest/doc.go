// Package ormtest has no code of its own: its tests show how the libraries that Go services use on PostgreSQL publish
// inside their own transactions (database/sql with pgx and with lib/pq, sqlx, bun, GORM, ent), and hold the store to it.
// It is a module of its own so that nobody else needs those libraries.
package ormtest
