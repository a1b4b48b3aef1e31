package relaybustest

import "github.com/relaybus-go/relaybus"

// Completed returns what New makes of a configuration.
func Completed(b *Bus, cfg relaybus.Config) relaybus.Config { return b.complete(cfg) }
