// Package bench measures relaybus beside its peers.
package bench
