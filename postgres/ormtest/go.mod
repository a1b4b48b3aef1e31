module github.com/relaybus-go/relaybus/postgres/ormtest

go 1.26.0

replace (
	github.com/relaybus-go/relaybus => ../../
	github.com/relaybus-go/relaybus/postgres => ../
)
