package memstore_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
	"github.com/relaybus-go/relaybus/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, backend())
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, backend()) }

func backend() storetest.Backend {
	return storetest.Backend{Name: "memory", New: newDatabase}
}

// newDatabase has rows of its own beside the events, which a transaction
// writes when it commits.
func newDatabase(testing.TB) storetest.Database {
	var (
		mu    sync.Mutex
		first *memstore.Store
		rows  []string
	)
	return storetest.Database{
		Open: func(_ testing.TB, o storetest.Options) store.Store {
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = memstore.New(memstore.Config{History: o.History})
				return first
			}
			return first.Instance()
		},
		Begin: func(tb testing.TB, s store.Store) storetest.CallerTx {
			tb.Helper()
			own, ok := s.(*memstore.Store)
			if !ok {
				tb.Fatalf("%T is no memory store", s)
			}
			tx := own.Begin()
			return storetest.CallerTx{
				Tx: tx, Rollback: tx.Rollback,
				Commit: func() error { return tx.Commit(tb.Context()) },
			}
		},
		Effect: func(ctx context.Context, tx store.Tx, id string) error {
			own, ok := tx.(*memstore.Transaction)
			if !ok {
				return store.NewError("write row", store.ErrForeignTx, "", nil)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			own.OnCommit(func() {
				mu.Lock()
				defer mu.Unlock()
				rows = append(rows, id)
			})
			return nil
		},
		Effects: func(testing.TB, store.Store) []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(rows)
		},
	}
}

// The model on the reference itself: what it reports is a fault of the model,
// or of the store between instances.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			storetest.RunModel(t, backend(), backend(), seed, 250)
		})
	}
}
