package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func catalogCases() []testCase {
	return []testCase{
		{name: "B23 the catalogue keeps handlers", run: catalogKeeps},
		{name: "B23 a handler with deliveries and no entry is listed", run: catalogUnknownHandlers},
		{name: "B23 B21 retire and come back", run: catalogRetire},
		{name: "B23 many processes record at once", run: catalogTogether},
		{name: "B17 a paused handler is not claimed", run: pausedNotClaimed},
		{name: "B17 pause while others claim", run: pauseWhileClaiming},
		{name: "B17 pause lets running deliveries end", run: pauseLetsEnd},
		{name: "Z9 I8 paused work costs other handlers nothing", run: pausedBesideOthers},
		{name: "B14 Waker signals a publish of another instance", run: wakerSignals},
	}
}

func isOneOf(err error, classes ...error) bool {
	return slices.ContainsFunc(classes, func(class error) bool { return errors.Is(err, class) })
}

func entry(id string, types []string, aliases ...string) store.HandlerEntry {
	return store.HandlerEntry{Handler: store.Handler{ID: id, Aliases: aliases}, Types: types}
}

func (b *bed) record(entries ...store.HandlerEntry) {
	b.t.Helper()
	if err := b.s.RecordHandlers(b.ctx(), entries, b.now); err != nil {
		b.t.Fatalf("record handlers: %v", err)
	}
}

// entries returns the catalogue as another instance sees it.
func (b *bed) entries() map[string]store.HandlerEntry {
	b.t.Helper()
	list, err := b.open().Handlers(b.ctx())
	if err != nil {
		b.t.Fatalf("handlers: %v", err)
	}
	if !slices.IsSortedFunc(list, func(a, b store.HandlerEntry) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	}) {
		b.t.Errorf("the handlers are not in the order of their ids: %+v", list)
	}
	entries := make(map[string]store.HandlerEntry)
	for _, e := range list {
		entries[e.ID] = e
	}
	if len(entries) != len(list) {
		b.t.Errorf("a handler is listed twice: %+v", list)
	}
	return entries
}

func catalogKeeps(b *bed) {
	if got := b.entries(); len(got) != 0 {
		b.t.Errorf("an empty catalogue has %+v", got)
	}
	b.record(entry("b", []string{"order.*", "user.created.v1"}, "b-old", "b-older"), entry("a", nil))
	first := b.now
	got := b.entries()
	if len(got) != 2 || !slices.Equal(got["b"].Types, []string{"order.*", "user.created.v1"}) ||
		!slices.Equal(got["b"].Aliases, []string{"b-old", "b-older"}) || len(got["a"].Types) != 0 || len(got["a"].Aliases) != 0 {
		b.t.Errorf("the catalogue has %+v", got)
	}
	b.pass(time.Minute)
	b.record(entry("b", []string{"invoice.*"}), entry("c", []string{"x"}))
	got = b.entries()
	if len(got) != 3 || !slices.Equal(got["b"].Types, []string{"invoice.*"}) || len(got["b"].Aliases) != 0 {
		b.t.Errorf("after the update: %+v", got)
	}
	if !got["b"].RecordedAt.Equal(b.now) || !got["a"].RecordedAt.Equal(first) || got["a"].RecordedAt.Location() != time.UTC {
		b.t.Errorf("recorded at %v and %v, want %v and %v", got["b"].RecordedAt, got["a"].RecordedAt, b.now, first)
	}
	if err := b.s.RecordHandlers(b.ctx(), nil, b.now); err != nil {
		b.t.Errorf("record nothing: %v", err)
	}
	for _, text := range HostileStrings() {
		b.record(entry(text, []string{text, "order.*"}, text+"'"))
	}
	got = b.entries()
	for _, text := range HostileStrings() {
		if e := got[text]; !slices.Equal(e.Types, []string{text, "order.*"}) || !slices.Equal(e.Aliases, []string{text + "'"}) {
			b.t.Errorf("handler %q came back as %+v", text, e)
		}
	}
}

func catalogUnknownHandlers(b *bed) {
	b.record(entry("known", []string{"x"}))
	b.publish(b.event("e", "", "known", "unknown"))
	got := b.entries()
	if len(got) != 2 || len(got["unknown"].Types) != 0 || got["unknown"].ID != "unknown" || got["unknown"].Paused || got["unknown"].Retired {
		b.t.Errorf("the catalogue has %+v", got)
	}
	b.record(entry("unknown", []string{"y"}))
	if got := b.entries(); !slices.Equal(got["unknown"].Types, []string{"y"}) {
		b.t.Errorf("after recording it: %+v", got)
	}
}

func catalogRetire(b *bed) {
	b.record(entry("h", []string{"x"}), entry("g", []string{"x"}))
	b.publish(b.event("e", "", "h"))
	b.pass(time.Minute)
	if err := b.s.RetireHandler(b.ctx(), "h", b.now); err != nil {
		b.t.Fatalf("retire: %v", err)
	}
	got := b.entries()
	if !got["h"].Retired || got["g"].Retired || !slices.Equal(got["h"].Types, []string{"x"}) {
		b.t.Errorf("after the retirement: %+v", got)
	}
	// Its deliveries stay, and can be drained or dropped.
	b.counts(1, 0, 0)
	b.complete("w", b.one("w", "h", "e"))
	b.wantError(b.s.RetireHandler(b.ctx(), "missing", b.now), store.ErrNotFound)
	if err := b.s.PauseHandler(b.ctx(), "h", true, b.now); err != nil {
		b.t.Fatalf("pause: %v", err)
	}
	b.record(entry("h", []string{"x"}))
	if got := b.entries(); got["h"].Retired || !got["h"].Paused {
		b.t.Errorf("recorded again: %+v, want it active and still paused", got["h"])
	}
}

func catalogTogether(b *bed) {
	const processes = 8
	errs := make([]error, processes)
	var group sync.WaitGroup
	for i := range processes {
		s := b.open()
		group.Go(func() {
			for range 3 {
				mine := []store.HandlerEntry{entry("a", []string{"x"}), entry("b", []string{"y"}), entry(numberedName("own", i), []string{"z"})}
				if i%2 == 1 {
					slices.Reverse(mine)
				}
				if err := s.RecordHandlers(b.ctx(), mine, b.now); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("record at once: %v", err)
	}
	if got := b.entries(); len(got) != processes+2 {
		b.t.Errorf("%d handlers, want %d", len(got), processes+2)
	}
}

func (b *bed) pause(handler string, paused bool) {
	b.t.Helper()
	if err := b.s.PauseHandler(b.ctx(), handler, paused, b.now); err != nil {
		b.t.Fatalf("pause %s: %v", handler, err)
	}
}

func pausedNotClaimed(b *bed) {
	b.record(entry("h", nil), entry("g", nil))
	b.publish(append(b.numbered("e", 10, "", "h", "g"), b.numbered("k", 2, "k", "h")...)...)
	b.pause("h", true)
	if got := b.claim("w", plenty, "h", "g"); len(got) != 10 || slices.ContainsFunc(got, func(c store.Claimed) bool { return c.Lease.Handler == "h" }) {
		b.t.Errorf("claimed %v, want the 10 of g", names(got))
	}
	if got := b.claimOn(b.open(), request("other", b.now, plenty, "h")); len(got) != 0 {
		b.t.Errorf("another instance claimed %v of a paused handler", names(got))
	}
	if !b.entries()["h"].Paused {
		b.t.Error("the catalogue doesn't show the pause")
	}
	b.pause("h", true)
	b.pause("h", false)
	b.pause("h", false)
	if got := b.claim("w", plenty, "h"); len(got) != 11 {
		b.t.Errorf("after the pause: claimed %v, want 11", names(got))
	}
	b.wantError(b.s.PauseHandler(b.ctx(), "missing", true, b.now), store.ErrNotFound)
	b.wantError(b.s.PauseHandler(b.ctx(), "missing", false, b.now), store.ErrNotFound)
}

// pauseWhileClaiming: once the pause has returned, no claim that begins later
// takes anything, on any instance.
func pauseWhileClaiming(b *bed) {
	const claimers = 4
	b.record(entry("h", nil))
	b.publish(b.numbered("e", 400, "", "h")...)
	var stores []store.Store
	for range claimers {
		stores = append(stores, b.open())
	}
	for turn := range 4 {
		stop := make(chan struct{})
		errs := make([]error, claimers)
		var group sync.WaitGroup
		for i, s := range stores {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					result, err := s.Claim(b.ctx(), request(numberedName("w", i), b.now, 3, "h"))
					if err == nil {
						err = settleAll(b, s, numberedName("w", i), result.Deliveries)
					}
					if err != nil {
						errs[i] = err
						return
					}
				}
			})
		}
		b.pause("h", true)
		for i, s := range stores {
			if got := b.claimOn(s, request(numberedName("late", i), b.now, plenty, "h")); len(got) != 0 {
				b.t.Errorf("turn %d: claimed %v after the pause", turn, names(got))
			}
		}
		close(stop)
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			b.t.Fatalf("turn %d: %v", turn, err)
		}
		b.pause("h", false)
		b.publish(b.event(numberedName("more", turn), "", "h"))
	}
}

func settleAll(b *bed, s store.Store, owner string, claimed []store.Claimed) error {
	var list []store.Settlement
	for _, c := range claimed {
		list = append(list, completion(c))
	}
	if len(list) == 0 {
		return nil
	}
	ok, err := s.Settle(b.ctx(), owner, list, b.now)
	if err == nil && slices.Contains(ok, false) {
		err = errors.New("a completion was refused")
	}
	return err
}

func pauseLetsEnd(b *bed) {
	b.record(entry("h", nil))
	b.publish(b.numbered("e", 3, "k", "h")...)
	c := b.one("w", "h", "e-0")
	b.pause("h", true)
	if held, err := b.s.Extend(b.ctx(), "w", []store.Lease{c.Lease}, b.now, term); err != nil || !held[0] {
		b.t.Fatalf("extend: %v, %v", held, err)
	}
	b.settle("w", reschedule(c, b.now))
	b.none("w", "h")
	b.pause("h", false)
	c = b.one("w", "h", "e-0")
	b.pause("h", true)
	b.pass(term + time.Millisecond)
	// A takeover charges the loss although nobody may claim it now.
	b.none("heir", "h")
	if d := b.delivery("e-0", "h"); d.Attempts != 2 || d.Lost != 1 || d.Status != store.StatusPending {
		b.t.Errorf("after the takeover: %+v", d)
	}
	b.lost(completion(c))
	b.pause("h", false)
	b.complete("heir", b.one("heir", "h", "e-0"))
}

func pausedBesideOthers(b *bed) {
	b.record(entry("paused", nil), entry("h", nil))
	b.publish(b.numbered("p", 500, "", "paused")...)
	b.pause("paused", true)
	b.pass(time.Second)
	b.publish(b.numbered("e", 20, "", "h")...)
	got := b.claim("w", 20, "paused", "h")
	if len(got) != 20 {
		b.t.Errorf("claimed %d beside paused work, want 20", len(got))
	}
}

func wakerSignals(b *bed) {
	waker, ok := b.s.(store.Waker)
	if !ok {
		b.t.Log("the store has no Waker: polling alone brings work of other processes")
		return
	}
	other := b.open()
	signals := make(chan struct{}, 1)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(b.ctx())
	defer stop()
	go func() {
		ended <- waker.Wake(ctx, func() {
			select {
			case signals <- struct{}{}:
			default:
			}
		})
	}()
	// Signals may be lost, so publish until one comes.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i, signalled := 0, false; !signalled; i++ {
		if _, err := publish(b.ctx(), other, b.now, b.event(numberedName("e", i), "", "h")); err != nil {
			b.t.Fatalf("publish: %v", err)
		}
		select {
		case <-signals:
			signalled = true
		case err := <-ended:
			b.t.Fatalf("wake ended with %v", err)
		case <-tick.C:
			if i > 500 {
				b.t.Fatal("500 publishes and no signal")
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		b.t.Errorf("wake returned %v after its context had ended", err)
	}
}
