package main

import (
	"context"
	"errors"

	"github.com/relaybus-go/relaybus/sqlite"
)

func openSQLiteRelaybus(ctx context.Context, e setting) (queue, error) {
	s, err := sqlite.Open(e.address)
	if err != nil {
		return nil, err
	}
	list, err := newOrders(ctx, s.DB())
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	o := &ours{
		setting: e,
		order:   func(ctx context.Context, ord order) error { return list.add(ctx, sqlite.Tx(ctx), ord) },
		tally: func(ctx context.Context) (tally, error) {
			return countTables(ctx, s.Reader(), "SELECT count(*) FROM relaybus_deliveries")
		},
		release: func() error { return errors.Join(list.close(), s.Close()) },
	}
	if err := o.start(ctx, s); err != nil {
		return nil, errors.Join(err, o.release())
	}
	return o, nil
}

func openSQLiteStore(ctx context.Context, address string) (*claimStore, error) {
	s, err := sqlite.Open(address)
	if err != nil {
		return nil, err
	}
	if err := s.Setup(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &claimStore{Store: s, close: s.Close, add: addTo(s)}, nil
}
