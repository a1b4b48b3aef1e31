module github.com/relaybus-go/relaybus/bench

go 1.25.0

require (
	github.com/relaybus-go/relaybus v0.0.0
	github.com/relaybus-go/relaybus/sqlite v0.0.0
)

replace (
	github.com/relaybus-go/relaybus => ../
	github.com/relaybus-go/relaybus/sqlite => ../sqlite
)
