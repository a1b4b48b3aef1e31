module github.com/relaybus-go/relaybus

go 1.26.0
