package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func transactionCases() []testCase {
	return []testCase{
		{name: "S2 a committed transaction has its event, a rolled-back one has not", run: commitAndRollback},
		{name: "S2 the caller's writes and the event commit together", needs: needsEffects, run: effectsAndEvents},
		{name: "S2 a transaction that the caller opened", needs: needsBegin, run: callerTransaction},
		{name: "S2 I2 nobody sees an event before its commit", run: unseenBeforeCommit},
		{name: "S2 a context that ends before the commit", run: cancelledInside},
		{name: "S2 F27 a panic and Goexit inside a transaction roll back", run: panicInside},
		{name: "S2 an error of the function is returned unchanged", run: errorUnchanged},
		{name: "B1 the context carries the transaction", run: contextCarries},
		{name: "B3 S15 CheckTx tells open, finished and foreign apart", run: checkTx},
		{name: "B3 S15 a finished or foreign transaction writes nothing", run: badTxWritesNothing},
		{name: "B12 CompleteTx commits with the caller's writes", needs: needsEffects, run: completeTxTogether},
		{name: "B12 CompleteTx is undone by a rollback", run: completeTxRollback},
		{name: "B12 F16 CompleteTx under a lost lease", run: completeTxLost},
		{name: "B12 F02 F16 a takeover between CompleteTx and the commit", run: takeoverBeforeCommit},
		{name: "F09 reading while transactions are open", run: readInsideTransaction},
		{name: "F09 a transaction inside another goroutine's transaction ends", run: nestedTransaction},
		{name: "S2 transactions of two callers overlap", needs: needsParallelTransactions, run: overlappingTransactions},
		{name: "F56 a lazy transaction that did nothing blocks nobody", run: lazyBlocksNobody},
		{name: "F56 no transaction is open while a delivery runs", run: runningBlocksNobody},
	}
}

var errUndo = errors.New("undo")

func commitAndRollback(b *bed) {
	b.publish(b.event("kept", "k", "h"))
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		got, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("undone", "k", "h"), b.event("undone-2", "", "h")}, b.now)
		if err != nil {
			return err
		}
		if len(got) != 2 || !got[0].Inserted || got[0].Deliveries != 1 || !got[1].Inserted {
			return fmt.Errorf("append reported %+v", got)
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		b.t.Fatalf("transact returned %v", err)
	}
	for _, id := range []string{"undone", "undone-2"} {
		_, _, err = b.s.GetEvent(b.ctx(), id)
		b.wantError(err, store.ErrNotFound)
	}
	b.complete("w", b.one("w", "h", "kept"))
	b.none("w", "h")
	if got := b.publish(b.event("undone", "k", "h")); !got[0].Inserted {
		b.t.Error("the id of an event that was rolled back is taken")
	}
	b.complete("w", b.one("w", "h", "undone"))
}

func effectsAndEvents(b *bed) {
	for i := range 10 {
		id := numberedName("e", i)
		err := b.s.Transact(b.ctx(), store.TxOptions{Lazy: i%4 < 2}, func(ctx context.Context, tx store.Tx) error {
			if err := b.db.Effect(ctx, tx, id); err != nil {
				return err
			}
			if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event(id, "k", "h")}, b.now); err != nil {
				return err
			}
			if i%2 == 1 {
				return errUndo
			}
			return nil
		})
		if want := i%2 == 1; errors.Is(err, errUndo) != want || (err != nil) != want {
			b.t.Fatalf("transaction %d returned %v", i, err)
		}
	}
	want := []string{"e-0", "e-2", "e-4", "e-6", "e-8"}
	if got := b.db.Effects(b.t, b.s); !slices.Equal(got, want) {
		b.t.Errorf("the caller's rows are %v, want %v", got, want)
	}
	for _, id := range want {
		b.complete("w", b.one("w", "h", id))
	}
	b.counts(0, 0, 0)
}

func callerTransaction(b *bed) {
	for i := range 4 {
		id := numberedName("e", i)
		tx := b.db.Begin(b.t, b.s)
		if err := b.s.CheckTx(b.ctx(), tx.Tx); err != nil {
			b.t.Fatalf("check an open transaction: %v", err)
		}
		if b.db.Effect != nil {
			if err := b.db.Effect(b.ctx(), tx.Tx, id); err != nil {
				b.t.Fatalf("effect: %v", err)
			}
		}
		got, err := b.s.Append(b.ctx(), tx.Tx, []store.NewEvent{b.event(id, "", "h")}, b.now)
		if err != nil || !got[0].Inserted {
			b.t.Fatalf("append: %+v, %v", got, err)
		}
		end := tx.Commit
		if i%2 == 1 {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			b.t.Fatalf("end of transaction %d: %v", i, err)
		}
		b.wantError(b.s.CheckTx(b.ctx(), tx.Tx), store.ErrTxDone)
	}
	got := b.claim("w", plenty, "h")
	b.wantEvents(got, "e-0", "e-2")
	b.complete("w", got...)
	if b.db.Effects != nil {
		if got := b.db.Effects(b.t, b.s); !slices.Equal(got, []string{"e-0", "e-2"}) {
			b.t.Errorf("the caller's rows are %v", got)
		}
	}
	// A completion in a caller's transaction, too.
	b.publish(b.event("last", "", "h"))
	c := b.one("w", "h", "last")
	tx := b.db.Begin(b.t, b.s)
	if err := b.s.CompleteTx(b.ctx(), tx.Tx, "w", c.Lease, b.now); err != nil {
		b.t.Fatalf("complete: %v", err)
	}
	if err := tx.Commit(); err != nil {
		b.t.Fatalf("commit: %v", err)
	}
	b.counts(0, 0, 0)
}

//nolint:contextcheck // The other instance is asked outside of the transaction.
func unseenBeforeCommit(b *bed) {
	other := b.open()
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("e", "k", "h")}, b.now); err != nil {
			return err
		}
		if _, _, err := other.GetEvent(b.ctx(), "e"); !errors.Is(err, store.ErrNotFound) {
			b.t.Errorf("another instance reads an event before its commit: %v", err)
		}
		if got, err := listAll(b.ctx(), other, store.Filter{}, 10); err != nil || len(got) != 0 {
			b.t.Errorf("another instance lists %d deliveries before their commit (%v)", len(got), err)
		}
		if b.s.Features().SerialTransactions {
			return nil // A claim would wait for this transaction.
		}
		result, err := other.Claim(b.ctx(), request("w", b.now, 1, "h"))
		if len(result.Deliveries) != 0 {
			b.t.Error("another instance claims a delivery before its commit")
		}
		return err
	})
	if err != nil {
		b.t.Fatalf("transact: %v", err)
	}
	if got := b.claimOn(other, request("w", b.now, 1, "h")); len(got) != 1 {
		b.t.Errorf("another instance claims %v after the commit", names(got))
	}
}

func cancelledInside(b *bed) {
	ctx, cancel := context.WithCancel(b.ctx())
	defer cancel()
	err := b.s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		_, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("e", "k", "h")}, b.now)
		cancel()
		return err
	})
	b.wantError(err)
	if !errors.Is(err, context.Canceled) {
		b.t.Errorf("the cause is out of reach in %v", err)
	}
	_, _, err = b.s.GetEvent(b.ctx(), "e")
	b.wantError(err, store.ErrNotFound)
	b.publish(b.event("e", "k", "h"))
	b.complete("w", b.one("w", "h", "e"))
}

func panicInside(b *bed) {
	endings := map[string]func(){
		"a value":  func() { panic("boom") },
		"an error": func() { panic(errUndo) },
		"nil":      func() { panic(nil) }, //nolint:govet // What a handler may do.
		"Goexit":   runtime.Goexit,
	}
	for name, end := range endings {
		for _, lazy := range []bool{false, true} {
			var recovered any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recovered = recover() }()
				_ = b.s.Transact(b.ctx(), store.TxOptions{Lazy: lazy}, func(ctx context.Context, tx store.Tx) error {
					if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("e", "k", "h")}, b.now); err != nil {
						b.t.Errorf("append: %v", err)
					}
					end()
					return nil
				})
			}()
			<-done
			if passed := recovered != nil; passed != (name != "Goexit") {
				b.t.Errorf("%s: recovered %v", name, recovered)
			}
			if name == "a value" && recovered != "boom" {
				b.t.Errorf("the panic came out as %v", recovered)
			}
			_, _, err := b.s.GetEvent(b.ctx(), "e")
			b.wantError(err, store.ErrNotFound)
		}
	}
	b.publish(b.event("e", "k", "h"))
	b.complete("w", b.one("w", "h", "e"))
}

func errorUnchanged(b *bed) {
	mine := &plainError{}
	for _, lazy := range []bool{false, true} {
		for _, write := range []bool{false, true} {
			err := b.s.Transact(b.ctx(), store.TxOptions{Lazy: lazy}, func(ctx context.Context, tx store.Tx) error {
				if write {
					if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("e", "", "h")}, b.now); err != nil {
						return err
					}
				}
				return mine
			})
			if err != error(mine) { //nolint:errorlint // The very same value is promised.
				b.t.Errorf("lazy %v, with a write %v: transact returned %v", lazy, write, err)
			}
		}
	}
	b.counts(0, 0, 0)
}

type plainError struct{}

func (*plainError) Error() string { return "mine" }

func contextCarries(b *bed) {
	type key struct{}
	outer := context.WithValue(b.ctx(), key{}, "kept")
	for _, lazy := range []bool{false, true} {
		err := b.s.Transact(outer, store.TxOptions{Lazy: lazy}, func(ctx context.Context, tx store.Tx) error {
			if txs := store.TxsFrom(ctx); len(txs) != 1 || txs[0] != tx {
				b.t.Errorf("the context carries %v, want the transaction", txs)
			}
			if ctx.Value(key{}) != "kept" {
				b.t.Error("the context lost a value")
			}
			if tx.StoreKind() != b.s.Kind() {
				b.t.Errorf("the transaction is of kind %q, the store of kind %q", tx.StoreKind(), b.s.Kind())
			}
			return b.s.CheckTx(ctx, tx)
		})
		if err != nil {
			b.t.Fatalf("transact: %v", err)
		}
	}
}

type strangeTx struct{}

func (strangeTx) StoreKind() string { return "strange" }

func checkTx(b *bed) {
	strange := b.fresh(b.t, Options{})
	other := b.open()
	var kept, keptLazy, undone store.Tx
	for _, end := range []struct {
		lazy bool
		tx   *store.Tx
		err  error
	}{{false, &kept, nil}, {true, &keptLazy, nil}, {false, &undone, errUndo}} {
		_ = b.s.Transact(b.ctx(), store.TxOptions{Lazy: end.lazy}, func(ctx context.Context, tx store.Tx) error {
			*end.tx = tx
			if err := b.s.CheckTx(ctx, tx); err != nil {
				b.t.Errorf("an open transaction: %v", err)
			}
			if err := other.CheckTx(ctx, tx); err != nil {
				b.t.Errorf("an open transaction, asked on another instance of the database: %v", err)
			}
			b.wantError(strange.s.CheckTx(ctx, tx), store.ErrForeignTx)
			return end.err
		})
	}
	for _, tx := range []store.Tx{kept, keptLazy, undone} {
		b.wantError(b.s.CheckTx(b.ctx(), tx), store.ErrTxDone)
	}
	b.wantError(b.s.CheckTx(b.ctx(), strangeTx{}), store.ErrForeignTx)
	b.wantError(b.s.CheckTx(b.ctx(), nil), store.ErrForeignTx)
}

func badTxWritesNothing(b *bed) {
	strange := b.fresh(b.t, Options{})
	b.publish(b.event("running", "", "h"))
	c := b.one("w", "h", "running")
	try := func(what string, tx store.Tx, class error) {
		b.t.Helper()
		_, err := b.s.Append(b.ctx(), tx, []store.NewEvent{b.event("e", "k", "h")}, b.now)
		if problem := errorProblem(err, class); problem != "" {
			b.t.Errorf("append in %s: %s", what, problem)
		}
		err = b.s.CompleteTx(b.ctx(), tx, "w", c.Lease, b.now)
		if problem := errorProblem(err, class); problem != "" {
			b.t.Errorf("complete in %s: %s", what, problem)
		}
	}
	var done store.Tx
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(_ context.Context, tx store.Tx) error {
		done = tx
		return nil
	})
	if err != nil {
		b.t.Fatalf("transact: %v", err)
	}
	try("a finished transaction", done, store.ErrTxDone)
	try("a stranger's transaction", strangeTx{}, store.ErrForeignTx)
	try("no transaction", nil, store.ErrForeignTx)
	err = strange.s.Transact(b.ctx(), store.TxOptions{}, func(_ context.Context, tx store.Tx) error {
		try("a transaction of another database", tx, store.ErrForeignTx)
		return nil
	})
	if err != nil {
		b.t.Fatalf("transact: %v", err)
	}
	for _, s := range []store.Store{b.s, strange.s} {
		_, _, err := s.GetEvent(b.ctx(), "e")
		b.wantError(err, store.ErrNotFound)
	}
	b.counts(0, 1, 0)
	b.complete("w", c)
}

// readInsideTransaction: nobody who holds a transaction waits for a connection
// that another holder needs.
//
//nolint:contextcheck // The reading is outside of the transaction.
func readInsideTransaction(b *bed) {
	const workers = 12
	b.publish(b.numbered("e", 5, "", "h")...)
	errs := make([]error, workers)
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			errs[i] = b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
				if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event(numberedName("x", i), "k", "g")}, b.now); err != nil {
					return err
				}
				_, listErr := b.s.List(b.ctx(), store.Filter{Handler: "h"}, store.Page{Limit: 10})
				_, statsErr := b.s.Stats(b.ctx(), b.now)
				_, _, getErr := b.s.GetEvent(b.ctx(), "e-0")
				_, handlersErr := b.s.Handlers(b.ctx())
				return errors.Join(listErr, statsErr, getErr, handlersErr, b.s.CheckTx(ctx, tx))
			})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("reading inside transactions: %v", err)
	}
	b.counts(5+workers, 0, 0)
}

// nestedTransaction: a transaction that waits for one that its own caller holds
// ends with its context, with a class, and the outer one goes on.
//
//nolint:contextcheck // The inner transaction has nothing of the outer one.
func nestedTransaction(b *bed) {
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		if _, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("outer", "k", "h")}, b.now); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(b.ctx(), 200*time.Millisecond)
		defer cancel()
		_, err := publish(bounded, b.s, b.now, b.event("inner", "other", "h"))
		if err != nil {
			b.oneOf(err, store.ErrTimeout, store.ErrUnavailable, store.ErrConflict)
		}
		return nil
	})
	if err != nil {
		b.t.Fatalf("outer transaction: %v", err)
	}
	if _, _, err := b.s.GetEvent(b.ctx(), "outer"); err != nil {
		b.t.Errorf("the outer transaction's event: %v", err)
	}
}

//nolint:contextcheck // The others work outside of the transaction.
func lazyBlocksNobody(b *bed) {
	other := b.open()
	err := b.s.Transact(b.ctx(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
		for i, s := range []store.Store{b.s, other} {
			if _, err := publish(b.ctx(), s, b.now, b.event(numberedName("e", i), "k", "h")); err != nil {
				return err
			}
		}
		result, err := other.Claim(b.ctx(), request("w", b.now, 1, "h"))
		if err != nil {
			return err
		}
		if len(result.Deliveries) != 1 {
			b.t.Errorf("claimed %v beside a lazy transaction", names(result.Deliveries))
		}
		_, err = b.s.Append(ctx, tx, []store.NewEvent{b.event("late", "k", "h")}, b.now)
		return err
	})
	if err != nil {
		b.t.Fatalf("lazy transaction: %v", err)
	}
	b.counts(2, 1, 0)
}

func runningBlocksNobody(b *bed) {
	other := b.open()
	b.publish(b.numbered("e", 3, "", "h")...)
	got := b.claim("w", plenty, "h")
	if _, err := publish(b.ctx(), other, b.now, b.event("f", "k", "g")); err != nil {
		b.t.Fatalf("publish while deliveries run: %v", err)
	}
	if more := b.claimOn(other, request("v", b.now, 1, "g")); len(more) != 1 {
		b.t.Errorf("claimed %v while deliveries run", names(more))
	}
	b.complete("w", got...)
}

// overlappingTransactions: two transactions are open at once, and both commit,
// in the order that their callers choose.
func overlappingTransactions(b *bed) {
	first, second := make(chan struct{}), make(chan struct{})
	errs := make(chan error, 1)
	go func() {
		errs <- b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			_, err := b.s.Append(ctx, tx, []store.NewEvent{b.event("slow", "a", "h")}, b.now)
			close(first)
			<-second
			return err
		})
	}()
	<-first
	_, err := publish(b.ctx(), b.s, b.now, b.event("fast", "b", "h"))
	if err == nil {
		b.complete("w", b.one("w", "h", "fast"))
	}
	close(second)
	if err := errors.Join(err, <-errs); err != nil {
		b.t.Fatalf("overlapping transactions: %v", err)
	}
	b.complete("w", b.one("w", "h", "slow"))
}
