package storetest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func setupCases() []testCase {
	return []testCase{
		{name: "S1 setup twice keeps what is there", run: setupTwice},
		{name: "S1 F17 setup by many at once on an empty database", run: setupTogether},
		{name: "S1 S15 before setup", run: beforeSetup},
		{name: "S1 everything survives that the store is closed", needs: needsDurability, run: closeAndReopen},
		{name: "S1 setup that is cancelled can be run again", run: setupCancelled},
	}
}

func setupTwice(b *bed) {
	b.publish(b.event("e1", "k", "h"), b.event("e2", "", "h"))
	running := b.claim("w", 1, "h")
	for range 3 {
		if err := b.open().Setup(b.ctx()); err != nil {
			b.t.Fatalf("setup again: %v", err)
		}
	}
	b.counts(1, 1, 0)
	b.complete("w", running...)
	b.complete("w", b.claim("w", plenty, "h")...)
	b.counts(0, 0, 0)
}

func setupTogether(b *bed) {
	const instances = 20
	db := b.backend.New(b.t)
	var stores []store.Store
	for range instances {
		stores = append(stores, db.Open(b.t, Options{}))
	}
	errs := make([]error, instances)
	var group sync.WaitGroup
	for i, s := range stores {
		group.Go(func() {
			if errs[i] = s.Setup(b.ctx()); errs[i] == nil {
				_, errs[i] = publish(b.ctx(), s, b.now, newEvent(numberedName("e", i), "k", b.now, "h"))
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("setup by %d instances at once: %v", instances, err)
	}
	b.s = stores[0]
	for range instances {
		got := b.claim("w", plenty, "h")
		if len(got) != 1 {
			b.t.Fatalf("%d deliveries of one key at once", len(got))
		}
		b.complete("w", got...)
	}
	b.counts(0, 0, 0)
}

// beforeSetup: a store that needs a setup says so, with the class that tells
// what to do; it never does half of what it was asked.
func beforeSetup(b *bed) {
	s := b.backend.New(b.t).Open(b.t, Options{})
	calls := map[string]func() error{
		"publish": func() error {
			_, err := publish(b.ctx(), s, b.now, b.event("e", "k", "h"))
			return err
		},
		"claim": func() error {
			_, err := s.Claim(b.ctx(), request("w", b.now, 1, "h"))
			return err
		},
		"list": func() error {
			_, err := s.List(b.ctx(), store.Filter{}, store.Page{Limit: 1})
			return err
		},
		"stats": func() error {
			_, err := s.Stats(b.ctx(), b.now)
			return err
		},
	}
	failed := 0
	for name, call := range calls {
		err := call()
		if err == nil {
			continue
		}
		failed++
		if problem := errorProblem(err, store.ErrNotSetUp, store.ErrConfiguration); problem != "" {
			b.t.Errorf("%s: %s", name, problem)
		}
	}
	if failed != 0 && failed != len(calls) {
		b.t.Errorf("%d of %d calls want a setup first; it should be all or none", failed, len(calls))
	}
	if err := s.Setup(b.ctx()); err != nil {
		b.t.Fatalf("setup after failed calls: %v", err)
	}
}

func setupCancelled(b *bed) {
	db := b.backend.New(b.t)
	s := db.Open(b.t, Options{})
	for n := 1; n <= 40; n++ {
		ctx, cancel := cancelAt(b.ctx(), n)
		err := s.Setup(ctx)
		cancel()
		if err == nil {
			break
		}
		b.wantError(err)
		if !errors.Is(err, context.Canceled) {
			b.t.Errorf("the cause is out of reach in %v", err)
		}
	}
	b.s = db.Open(b.t, Options{})
	if err := b.s.Setup(b.ctx()); err != nil {
		b.t.Fatalf("setup after cancelled ones: %v", err)
	}
	b.publish(b.event("e", "k", "h"))
	b.complete("w", b.one("w", "h", "e"))
}

// closeAndReopen: what one store has written is there for the next, what ran
// included.
func closeAndReopen(b *bed) {
	b.record(entry("h", []string{"order.*"}), entry("paused", nil))
	b.pause("paused", true)
	b.publish(append(b.numbered("k", 50, "k", "h"), b.event("free", "", "h"), b.event("held", "held", "d"), b.event("behind", "held", "d"))...)
	b.settle("w", bury(b.one("w", "d", "held"), true))
	b.complete("w", b.find(b.claim("w", plenty, "h"), "free"))
	before := b.snapshot()
	closer, ok := b.s.(io.Closer)
	if !ok {
		b.t.Fatal("a durable store without Close")
	}
	if err := closer.Close(); err != nil {
		b.t.Fatalf("close: %v", err)
	}
	b.s = b.open()
	if after := b.snapshot(); after != before {
		b.t.Fatalf("after the store was opened again\n%s\nwas\n%s", after, before)
	}
	if !b.entries()["paused"].Paused {
		b.t.Error("the pause is gone")
	}
	b.wantAppended(b.publish(b.event("free", "", "h"))[0], false, 0)
	b.none("w", "h", "d")
	b.pass(term + time.Millisecond)
	for i := range 50 {
		c := b.one("w", "h", numberedName("k", i))
		if want := map[bool]int{true: 2, false: 1}[i == 0]; c.Attempt != want {
			b.t.Errorf("%s in attempt %d, want %d", c.Event.ID, c.Attempt, want)
		}
		b.complete("w", c)
	}
	b.none("w", "d")
}
