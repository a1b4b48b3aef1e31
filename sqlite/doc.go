// Package sqlite is the relaybus store on SQLite.
package sqlite
