package memstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

func TestTxPanicsWithAClearText(t *testing.T) {
	t.Parallel()
	if _, ok := memstore.TxFrom(t.Context()); ok {
		t.Error("a context without transaction has one")
	}
	defer func() {
		text, _ := recover().(string)
		if !strings.Contains(text, "memstore.Tx: the context carries no transaction") {
			t.Errorf("panic: %q", text)
		}
	}()
	memstore.Tx(t.Context())
}

func TestTransactCarriesTheTransaction(t *testing.T) {
	t.Parallel()
	outer, inner := memstore.New(memstore.Config{}), memstore.New(memstore.Config{})
	err := outer.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, outerTx store.Tx) error {
		return inner.Transact(ctx, store.TxOptions{}, func(ctx context.Context, innerTx store.Tx) error {
			if memstore.Tx(ctx) != innerTx {
				t.Error("the context has another transaction than the innermost")
			}
			if err := inner.CheckTx(ctx, outerTx); !errors.Is(err, store.ErrForeignTx) {
				t.Errorf("a transaction of another store: %v, want ErrForeignTx", err)
			}
			return outer.CheckTx(ctx, outerTx)
		})
	})
	if err != nil {
		t.Error(err)
	}
}

func TestEffectsCommitWithTheTransaction(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	var log []string
	note := func(text string) func() { return func() { log = append(log, text) } }
	begin := func() *memstore.Transaction {
		tx := s.Begin()
		tx.OnCommit(note("commit 1"))
		tx.OnCommit(note("commit 2"))
		tx.OnRollback(note("undo 1"))
		tx.OnRollback(note("undo 2"))
		return tx
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	boom := errors.New("boom")
	for _, test := range []struct {
		name string
		end  func() error
		want []string
		err  error
	}{
		{"commit", func() error { return begin().Commit(t.Context()) }, []string{"commit 1", "commit 2"}, nil},
		{"rollback", func() error { return begin().Rollback() }, []string{"undo 2", "undo 1"}, nil},
		{"commit of an ended context", func() error { return begin().Commit(cancelled) }, []string{"undo 2", "undo 1"}, store.ErrTimeout},
		{"failing function", func() error {
			return s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, _ store.Tx) error {
				memstore.Tx(ctx).OnCommit(note("commit"))
				memstore.Tx(ctx).OnRollback(note("undo"))
				return boom
			})
		}, []string{"undo"}, boom},
	} {
		log = nil
		if err := test.end(); !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", test.name, err, test.err)
		}
		if !slices.Equal(log, test.want) {
			t.Errorf("%s: effects %v, want %v", test.name, log, test.want)
		}
	}
}

func TestTransactRollsBackOnPanic(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	var tx store.Tx
	undone := false
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("panic %v, want boom", p)
			}
		}()
		_ = s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, own store.Tx) error {
			tx = own
			memstore.Tx(ctx).OnRollback(func() { undone = true })
			if _, err := s.Append(ctx, own, []store.NewEvent{event("e", "", "h")}, start()); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	if err := s.CheckTx(t.Context(), tx); !errors.Is(err, store.ErrTxDone) || !undone {
		t.Errorf("after the panic: %v, undone %t", err, undone)
	}
	if n := len(s.Events()); n != 0 {
		t.Errorf("%d events were committed", n)
	}
}

func TestAFinishedTransactionIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	tx := s.Begin()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, appended := s.Append(t.Context(), tx, []store.NewEvent{event("e", "", "h")}, start())
	for name, err := range map[string]error{
		"commit":   tx.Commit(t.Context()),
		"rollback": tx.Rollback(),
		"append":   appended,
		"check":    s.CheckTx(t.Context(), tx),
	} {
		if !errors.Is(err, store.ErrTxDone) {
			t.Errorf("%s: %v, want ErrTxDone", name, err)
		}
	}
}

// S3: two open transactions append the same id; the second commit adds only
// what the event lacks, although its append did not know.
func TestTheSameIDInTwoOpenTransactions(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	first, second := s.Begin(), s.Begin()
	for tx, e := range map[*memstore.Transaction]store.NewEvent{first: event("e", "k", "a", "b"), second: event("e", "k", "b", "c")} {
		got, err := s.Append(t.Context(), tx, []store.NewEvent{e}, start())
		if err != nil || !got[0].Inserted || got[0].Deliveries != 2 {
			t.Fatalf("append: %+v, %v", got, err)
		}
	}
	for _, tx := range []*memstore.Transaction{first, second} {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, deliveries, err := s.GetEvent(t.Context(), "e")
	if err != nil || len(deliveries) != 3 || len(s.Events()) != 1 {
		t.Errorf("%d deliveries of %d events, %v, want 3 of 1", len(deliveries), len(s.Events()), err)
	}
}

// Sequence order is commit order, whatever the order of the appends.
func TestSequencesComeWithTheCommit(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	early, late := s.Begin(), s.Begin()
	for _, step := range []struct {
		tx *memstore.Transaction
		id string
	}{{early, "appended first"}, {late, "committed first"}} {
		if _, err := s.Append(t.Context(), step.tx, []store.NewEvent{event(step.id, "k", "h")}, start()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(late.Commit(t.Context()), early.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	r := claim(t, s, 5, start(), "h")
	if got := names(r.Deliveries); !slices.Equal(got, []string{"committed first/h"}) {
		t.Errorf("claimed %v, want what was committed first", got)
	}
}

// B12: a completion whose lease is gone by the commit takes everything else of
// the transaction with it.
func TestALostLeaseFailsTheWholeCommit(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	other := s.Instance()
	publish(t, s, event("e", "", "h"))
	c := claim(t, s, 1, start(), "h").Deliveries[0]
	tx := s.Begin()
	applied := false
	tx.OnCommit(func() { applied = true })
	if err := s.CompleteTx(t.Context(), tx, "w", c.Lease, start()); err != nil {
		t.Fatal(err)
	}
	if err := s.CompleteTx(t.Context(), tx, "w", c.Lease, start()); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("the same completion twice: %v, want ErrLeaseLost", err)
	}
	if _, err := s.Append(t.Context(), tx, []store.NewEvent{event("follow-up", "", "h")}, start()); err != nil {
		t.Fatal(err)
	}
	later := start().Add(time.Minute)
	again := claim(t, other, 1, later, "h").Deliveries
	if len(again) != 1 || again[0].Attempt != 2 || again[0].Lost != 1 {
		t.Fatalf("takeover: %+v", again)
	}
	if err := tx.Commit(t.Context()); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("commit: %v, want ErrLeaseLost", err)
	}
	if applied || len(s.Events()) != 1 {
		t.Errorf("effects applied: %t, %d events, want none and 1", applied, len(s.Events()))
	}
	settle(t, other, store.Complete, again)
}
