package postgres_test

import (
	"testing"

	"github.com/relaybus-go/relaybus/store/storetest"
)

func BenchmarkStore(b *testing.B) { storetest.Bench(b, backend()) }
