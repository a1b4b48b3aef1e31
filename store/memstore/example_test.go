package memstore_test

import (
	"context"
	"fmt"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func ExampleTx() {
	s := memstore.New(memstore.Config{})
	balance := 0
	deposit := func(ctx context.Context, fail error) error {
		return s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, _ store.Tx) error {
			memstore.Tx(ctx).OnCommit(func() { balance += 100 })
			return fail
		})
	}
	fmt.Println(deposit(context.Background(), nil), balance)
	fmt.Println(deposit(context.Background(), store.ErrConflict), balance)
	// Output:
	// <nil> 100
	// transaction conflict 100
}
