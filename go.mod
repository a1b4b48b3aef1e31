module github.com/relaybus-go/relaybus

go 1.25.0
