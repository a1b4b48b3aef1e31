package relaybus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// Transaction runs fn in a transaction of the store. The context that fn gets
// carries it: publishing with it, and the store package's Tx(ctx), join. It
// commits when fn returns nil, and rolls back when fn returns an error, which
// Transaction returns, or panics.
//
// Inside another transaction of the bus's database it joins that one: nothing
// is committed before the outer one is, and an error of the inner fn makes the
// outer one roll back even if its own fn ignores it ([ErrRolledBack]).
//
// The transaction has the time budget Config.TransactionTimeout over all
// retries. Past it fn's context ends, everything is rolled back, and the error
// is a [*TransactionTimeoutError]. [OutcomeOf] says whether an error means that
// nothing was committed, or that the outcome is unknown.
//
// On a store that retries transactions (MongoDB) fn can run more than once; the
// last run counts. So fn should do nothing that a rollback does not undo.
func (b *Bus) Transaction(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := b.usable("transaction"); err != nil {
		return err
	}
	if fn == nil {
		return fmt.Errorf("transaction: %w: the function is nil", ErrInvalidArgument)
	}
	tx, err := b.activeTx(ctx, nil)
	if err != nil && !errors.Is(err, ErrForeignTx) {
		return fmt.Errorf("transaction: %w", err)
	}
	if tx != nil {
		return b.joinTransaction(ctx, tx, fn)
	}
	if err := b.ensureCatalog(ctx); err != nil {
		return fmt.Errorf("transaction: %w", err)
	}
	return b.transact(ctx, false, b.cfg.TransactionTimeout, func(ctx context.Context, _ store.Tx) error { return fn(ctx) })
}

// joinTransaction runs fn in the transaction that is open already.
func (b *Bus) joinTransaction(ctx context.Context, tx store.Tx, fn func(ctx context.Context) error) error {
	s := scopeWith(ctx, tx)
	if s == nil {
		// A transaction of the caller's own, who decides over it.
		if inContext, err := b.contextTx(ctx); err != nil || inContext == nil {
			ctx = store.WithTx(ctx, tx)
		}
		return fn(ctx)
	}
	returned := false
	defer func() {
		if !returned {
			s.doom(errors.New("nested transaction panicked"))
		}
	}()
	err := fn(ctx)
	returned = true
	if err != nil {
		s.doom(err)
	}
	return err
}

// scope is a transaction that the bus opened, and what was published in it.
type scope struct {
	bus *Bus
	tx  store.Tx

	mu        sync.Mutex
	doomed    error
	list      []Published
	unhandled []EventInfo
}

type scopeKey struct{}

// scopes is a linked list in the context, the innermost first.
type scopes struct {
	scope *scope
	outer *scopes
}

func withScope(ctx context.Context, s *scope) context.Context {
	outer, _ := ctx.Value(scopeKey{}).(*scopes)
	return context.WithValue(ctx, scopeKey{}, &scopes{scope: s, outer: outer})
}

// scopeOf is the innermost transaction that this bus opened, or nil.
func scopeOf(ctx context.Context, b *Bus) *scope {
	list, _ := ctx.Value(scopeKey{}).(*scopes)
	for ; list != nil; list = list.outer {
		if list.scope.bus == b {
			return list.scope
		}
	}
	return nil
}

// scopeWith is the scope of a transaction that some bus of this process opened,
// or nil.
func scopeWith(ctx context.Context, tx store.Tx) *scope {
	list, _ := ctx.Value(scopeKey{}).(*scopes)
	for ; list != nil; list = list.outer {
		if sameTx(list.scope.tx, tx) {
			return list.scope
		}
	}
	return nil
}

func (s *scope) doom(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doomed == nil {
		s.doomed = err
	}
}

func (s *scope) published(p Published, unhandled []EventInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, p)
	s.unhandled = append(s.unhandled, unhandled...)
}

// transact opens a transaction with a time budget. Once the outcome is known
// the hooks are told, and the dispatcher is woken.
func (b *Bus) transact(ctx context.Context, lazy bool, budget time.Duration, fn func(ctx context.Context, tx store.Tx) error) error {
	timeout := &TransactionTimeoutError{Budget: budget}
	txCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !lazy { // a transactional handler's context ends by itself: its timeout is its budget
		stop := b.cfg.Clock.AfterFunc(budget, func() { cancel(timeout) })
		defer stop()
	}

	var s *scope
	failed := false // fn itself failed, so whatever its error says, nothing was committed
	err := b.store.Transact(txCtx, store.TxOptions{Lazy: lazy}, func(ctx context.Context, tx store.Tx) error {
		s = &scope{bus: b, tx: tx} // anew for each run: what an earlier one published is gone
		failed = true
		if err := fn(withScope(ctx, s), tx); err != nil {
			return err
		}
		s.mu.Lock()
		doomed := s.doomed
		s.mu.Unlock()
		if doomed != nil {
			return fmt.Errorf("%w: %w", ErrRolledBack, doomed)
		}
		if cause := context.Cause(txCtx); cause != nil {
			return cause
		}
		failed = false
		return nil
	})
	outcome := OutcomeOf(err)
	if failed {
		outcome = NotCommitted
	}
	cause := context.Cause(txCtx)
	late := cause != nil && (errors.Is(cause, timeout) || (lazy && errors.Is(cause, ErrHandlerTimeout)))
	if outcome == NotCommitted && late {
		return &TransactionTimeoutError{Budget: budget, Err: withoutTimeout(err, cause)}
	}
	if s != nil && outcome != NotCommitted {
		b.concluded(ctx, s, outcome)
	}
	if failed && errors.Is(err, ErrOutcomeUnknown) {
		return &rolledBackError{err}
	}
	return err
}

// withoutTimeout is nil for an error that says no more than its cause.
func withoutTimeout(err, cause error) error {
	if errors.Is(err, cause) {
		return nil
	}
	return err
}

// concluded tells what was published in a transaction that has committed, or
// may have.
func (b *Bus) concluded(ctx context.Context, s *scope, outcome Outcome) {
	s.mu.Lock()
	list, unhandled := s.list, s.unhandled
	s.mu.Unlock()
	if len(list) == 0 {
		return
	}
	if e := b.currentEngine(); e != nil {
		e.Wake()
	}
	for i := range list {
		list[i].Outcome = outcome
	}
	if outcome != Committed {
		unhandled = nil
	}
	b.announce(ctx, list, unhandled)
}

// activeTx returns the transaction to join: the explicit one, else the innermost
// of the context that belongs to the store, else the resolver's; nil if there is
// none.
func (b *Bus) activeTx(ctx context.Context, explicit store.Tx) (store.Tx, error) {
	inContext, err := b.contextTx(ctx)
	if explicit != nil {
		if err := b.store.CheckTx(ctx, explicit); err != nil {
			return nil, err
		}
		if inContext != nil && !sameTx(inContext, explicit) {
			return nil, ErrAmbiguousTx
		}
		return explicit, nil
	}
	if err != nil && !errors.Is(err, ErrForeignTx) {
		return nil, err
	}
	resolved, resolveErr := b.resolve(ctx)
	if resolveErr != nil {
		return nil, fmt.Errorf("resolve transaction: %w", resolveErr)
	}
	if resolved == nil {
		return inContext, err
	}
	if err := b.store.CheckTx(ctx, resolved); err != nil {
		return nil, fmt.Errorf("resolve transaction: %w", err)
	}
	if inContext != nil && !sameTx(inContext, resolved) {
		return nil, ErrAmbiguousTx
	}
	return resolved, nil
}

// contextTx is the innermost transaction of the context that belongs to the
// store. Only foreign ones are ErrForeignTx.
func (b *Bus) contextTx(ctx context.Context) (store.Tx, error) {
	var foreign error
	for _, tx := range store.TxsFrom(ctx) {
		err := b.store.CheckTx(ctx, tx)
		switch {
		case err == nil:
			return tx, nil
		case errors.Is(err, ErrForeignTx):
			foreign = err
		default:
			return nil, err
		}
	}
	return nil, foreign
}

// resolve asks the user's resolver, and survives its panics.
func (b *Bus) resolve(ctx context.Context) (tx store.Tx, err error) {
	if b.cfg.Resolver == nil {
		return nil, nil
	}
	defer func() {
		if value := recover(); value != nil {
			tx, err = nil, fmt.Errorf("the resolver panicked with a %T", value)
		}
	}()
	tx, err = b.cfg.Resolver(ctx)
	if v := reflect.ValueOf(tx); tx != nil && v.Kind() == reflect.Pointer && v.IsNil() {
		tx = nil
	}
	return tx, err
}

// sameTx reports whether two values stand for one transaction.
func sameTx(a, b store.Tx) bool {
	return a == b || (a != nil && b != nil && store.Underlying(a) == store.Underlying(b))
}
