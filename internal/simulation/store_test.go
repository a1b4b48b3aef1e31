package simulation_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// backend is the store behind the faults: the memory store, or one with a
// mistake that the history must notice.
type backend interface {
	store.Store
	store.Waker
	Begin() *memstore.Transaction
}

var (
	_ backend     = (*memstore.Store)(nil)
	_ store.Store = (*faultyStore)(nil)
	_ store.Waker = (*faultyStore)(nil)
)

// faultyStore is the store of one process: it breaks calls, and tells the
// history what was applied.
type faultyStore struct {
	faults

	inner   backend
	history *history

	own sync.Mutex
	// doomed are transactions in which a call has failed without an answer: the
	// connection is gone, so they can't commit.
	doomed map[store.Tx]bool
	// lost are claims whose answer got lost. A store gives them back with the
	// owner's next claim; behind it, the memory store believes that they were
	// handed out.
	lost []store.Lease
}

func newFaultyStore(p *process, inner backend, h *history) *faultyStore {
	return &faultyStore{
		faults:  faults{process: p, calls: make(map[string]int)},
		inner:   inner,
		history: h,
		doomed:  make(map[store.Tx]bool),
	}
}

func (s *faultyStore) Kind() string             { return s.inner.Kind() }
func (s *faultyStore) Features() store.Features { return s.inner.Features() }

func (s *faultyStore) Setup(ctx context.Context) error {
	_, err := s.do(ctx, "set up store", s.inner.Setup)
	return err
}

func (s *faultyStore) Transact(
	ctx context.Context, _ store.TxOptions, fn func(ctx context.Context, tx store.Tx) error,
) error {
	begun, err := s.do(ctx, "begin transaction", nil)
	if err != nil {
		if begun { // nothing can have been committed
			return store.NewError("begin transaction", store.ErrUnavailable, "fault", nil)
		}
		return err
	}
	tx := s.inner.Begin()
	defer func() { _ = tx.Rollback() }() // an error says that it is over
	if err := fn(store.WithTx(ctx, tx), tx); err != nil {
		return err
	}
	applied, err := s.commit(ctx, tx)
	if a := attemptOf(ctx); a != nil && applied && err != nil && !errors.Is(err, store.ErrOutcomeUnknown) {
		a.lied = true
	}
	return err
}

// commit commits a transaction, of the bus or of the caller's own.
func (s *faultyStore) commit(ctx context.Context, tx *memstore.Transaction) (applied bool, err error) {
	return s.do(ctx, "commit transaction", func(ctx context.Context) error {
		s.own.Lock()
		doomed := s.doomed[tx]
		s.own.Unlock()
		if doomed {
			return store.NewError("commit transaction", store.ErrUnavailable, "the connection is gone", nil)
		}
		return tx.Commit(ctx)
	})
}

func (s *faultyStore) doom(tx store.Tx) {
	s.own.Lock()
	defer s.own.Unlock()
	s.doomed[tx] = true
}

func (s *faultyStore) CheckTx(ctx context.Context, tx store.Tx) error {
	return s.inner.CheckTx(ctx, tx)
}

func (s *faultyStore) Append(
	ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time,
) ([]store.Appended, error) {
	var appended []store.Appended
	applied, err := s.do(ctx, "append events", func(ctx context.Context) error {
		var err error
		if appended, err = s.inner.Append(ctx, tx, events, now); err != nil {
			return err
		}
		if own, ok := tx.(*memstore.Transaction); ok {
			own.OnCommit(func() {
				for _, e := range events {
					s.history.commit(e.ID)
				}
			})
		}
		return nil
	})
	if err != nil {
		if applied {
			s.doom(tx)
		}
		return nil, err
	}
	return appended, nil
}

func (s *faultyStore) Claim(ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
	var result store.ClaimResult
	applied, err := s.do(ctx, "claim deliveries", func(ctx context.Context) error {
		if ctx.Err() != nil {
			return store.NewError("claim deliveries", store.ErrTimeout, "", context.Cause(ctx))
		}
		s.giveBack(ctx, r.Owner, r.Now)
		expired := s.history.expired(s.process, r.Now)
		var err error
		if result, err = s.inner.Claim(ctx, r); err != nil {
			s.history.cannotTell() // whether it took over from others
			return err
		}
		s.history.claimed(s.process, r, result, expired)
		if trace := s.process.world.trace; trace != nil {
			for _, c := range result.Deliveries {
				trace("    %s claims %s for %s, token %s", s.process, c.Event.ID, c.Lease.Handler, c.Lease.Token)
			}
		}
		return nil
	})
	if err == nil {
		return result, nil
	}
	if applied {
		s.own.Lock()
		defer s.own.Unlock()
		for _, c := range result.Deliveries {
			s.lost = append(s.lost, c.Lease)
		}
	}
	return store.ClaimResult{}, err
}

// giveBack releases what was claimed without an answer.
func (s *faultyStore) giveBack(ctx context.Context, owner string, now time.Time) {
	s.own.Lock()
	lost := s.lost
	s.lost = nil
	s.own.Unlock()
	if len(lost) == 0 {
		return
	}
	list := make([]store.Settlement, len(lost))
	for i, l := range lost {
		list[i] = store.Settlement{Lease: l, Action: store.Release}
	}
	ok, err := s.inner.Settle(context.WithoutCancel(ctx), owner, list, now)
	if err != nil {
		s.history.suspect("giving back lost claims: %v", err)
		return
	}
	s.history.settled(s.process, list, ok)
}

func (s *faultyStore) Extend(
	ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration,
) ([]bool, error) {
	var holds []bool
	_, err := s.do(ctx, "extend leases", func(ctx context.Context) error {
		var err error
		if holds, err = s.inner.Extend(ctx, owner, leases, now, lease); err == nil {
			s.history.extended(s.process, now.Add(lease), leases, holds)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return holds, nil
}

func (s *faultyStore) Relinquish(ctx context.Context, owner string, now time.Time) error {
	_, err := s.do(ctx, "relinquish lanes", func(ctx context.Context) error {
		err := s.inner.Relinquish(ctx, owner, now)
		if err == nil {
			s.history.relinquished(s.process)
		}
		return err
	})
	return err
}

func (s *faultyStore) Settle(
	ctx context.Context, owner string, list []store.Settlement, now time.Time,
) ([]bool, error) {
	var ok []bool
	_, err := s.do(ctx, "settle deliveries", func(ctx context.Context) error {
		var err error
		if ok, err = s.inner.Settle(ctx, owner, list, now); err == nil {
			s.history.settled(s.process, list, ok)
			if trace := s.process.world.trace; trace != nil {
				for i, one := range list {
					trace("    %s: %s %s for %s, token %s: %v", s.process, one.Action, one.Lease.EventID, one.Lease.Handler, one.Lease.Token, ok[i])
				}
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return ok, nil
}

func (s *faultyStore) CompleteTx(ctx context.Context, tx store.Tx, owner string, l store.Lease, now time.Time) error {
	applied, err := s.do(ctx, "complete in transaction", func(ctx context.Context) error {
		err := s.inner.CompleteTx(ctx, tx, owner, l, now)
		if errors.Is(err, store.ErrLeaseLost) {
			s.history.refused(s.process, l)
		}
		if own, ok := tx.(*memstore.Transaction); ok && err == nil {
			own.OnCommit(func() { s.history.completedInTx(s.process, l) })
		}
		return err
	})
	if applied && err != nil {
		s.doom(tx)
	}
	return err
}

// Wake loses signals, and sometimes can't signal at all.
func (s *faultyStore) Wake(ctx context.Context, signal func()) error {
	if one, _ := s.draw("wake"); one.kind != noFault || s.process.isDead() {
		return store.NewError("wake", store.ErrUnavailable, "fault", nil)
	}
	return s.inner.Wake(ctx, func() {
		if one, _ := s.draw("signal"); one.kind == noFault && !s.process.isDead() {
			signal()
		}
	})
}
