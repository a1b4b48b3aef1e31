package postgres_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
	"github.com/relaybus-go/relaybus/store/storetest"
)

// I9 F50: random operations do the same here as on the memory store.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			storetest.RunModel(t, memoryBackend(), backend(), seed, 250)
		})
	}
}

func memoryBackend() storetest.Backend {
	return storetest.Backend{Name: "memory", New: func(testing.TB) storetest.Database {
		var mu sync.Mutex
		var first *memstore.Store
		return storetest.Database{Open: func(_ testing.TB, o storetest.Options) store.Store {
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = memstore.New(memstore.Config{History: o.History})
				return first
			}
			return first.Instance()
		}}
	}}
}
