package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func appendCases() []testCase {
	return []testCase{
		{name: "S3 B6 a known id adds no second event", run: knownID},
		{name: "S3 B6 a known id adds deliveries for new handlers only", run: knownIDNewHandler},
		{name: "S3 B6 a completed handler never runs again", run: completedNeverAgain},
		{name: "S3 B6 the same id twice in one call", run: sameIDInOneCall},
		{name: "S3 two transactions race for one id", run: raceForID},
		{name: "S3 races of one id with different handlers", run: raceForIDWithHandlers},
		{name: "S3 an event without handlers", run: eventWithoutHandlers},
		{name: "S4 Z6 sequences ascend in the order of one batch", run: sequencesOfBatch},
		{name: "S4 sequences ascend over several appends of fresh and other events", run: sequencesOfFresh},
		{name: "S4 sequence order is commit order", run: sequencesOfTransactions},
		{name: "S4 B6 a delivery that is added later keeps the event's sequence", run: sequenceOfLateDelivery},
		{name: "Z6 batches over the same keys in any order all commit", run: batchesOverSameKeys},
		{name: "B4 a large batch of mixed events", run: func(b *bed) { largeBatch(b, false) }},
		{name: "B4 a large batch of fresh events", run: func(b *bed) { largeBatch(b, true) }},
		{name: "B5 a delayed event waits for its time", run: delayedEvent},
	}
}

func (b *bed) wantAppended(got store.Appended, inserted bool, deliveries int) {
	b.t.Helper()
	if want := (store.Appended{Inserted: inserted, Deliveries: deliveries}); got != want {
		b.t.Errorf("append reported %+v, want %+v", got, want)
	}
}

func knownID(b *bed) {
	first := b.event("e", "k", "h")
	b.wantAppended(b.publish(first)[0], true, 1)
	other := first
	other.Type, other.Key, other.Payload = "other.v1", "other", []byte(`"other"`)
	b.wantAppended(b.publish(other)[0], false, 0)
	got := b.one("w", "h", "e")
	if got.Event.Type != first.Type || got.Event.Key != "k" || string(got.Event.Payload) != string(first.Payload) {
		b.t.Errorf("the second append changed the event: %+v", got.Event)
	}
	b.wantAppended(b.publish(other)[0], false, 0) // While it runs.
	b.complete("w", got)
	b.none("w", "h")
}

func knownIDNewHandler(b *bed) {
	first := b.event("e", "k", "h")
	b.publish(first)
	b.complete("w", b.one("w", "h", "e"))
	b.pass(time.Second)
	again := b.event("e", "other", "h", "g")
	again.Payload = []byte(`"other"`)
	b.wantAppended(b.publish(again)[0], false, 1)
	b.wantAppended(b.publish(again)[0], false, 0)
	got := b.claim("w", plenty, "h", "g")
	b.wantEvents(got, "e")
	if got[0].Lease.Handler != "g" || got[0].Event.Key != "k" || string(got[0].Event.Payload) != string(first.Payload) {
		b.t.Errorf("got %+v, want the first append's event for g", got[0])
	}
	b.complete("w", got...)
}

// completedNeverAgain holds for every way in which a delivery can end.
func completedNeverAgain(b *bed) {
	ends := map[string]func(c store.Claimed){
		"completed": func(c store.Claimed) { b.complete("w", c) },
		"in a transaction": func(c store.Claimed) {
			err := b.s.Transact(b.ctx(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
				return b.s.CompleteTx(ctx, tx, "w", c.Lease, b.now)
			})
			if err != nil {
				b.t.Fatalf("complete in a transaction: %v", err)
			}
		},
		"dead":      func(c store.Claimed) { b.settle("w", bury(c, false)) },
		"dead-held": func(c store.Claimed) { b.settle("w", bury(c, true)) },
	}
	for id, end := range ends {
		b.publish(b.event(id, "key-"+id, "h"))
		end(b.one("w", "h", id))
		for range 2 {
			b.wantAppended(b.publish(b.event(id, "key-"+id, "h"))[0], false, 0)
		}
		b.none("w", "h")
	}
	b.publish(b.event("dropped", "", "gone"), b.event("cancelled", "", "h"))
	if n, err := b.s.DropPending(b.ctx(), "gone", 10, b.now); n != 1 || err != nil {
		b.t.Fatalf("drop: %d, %v", n, err)
	}
	if err := b.s.CancelEvent(b.ctx(), "cancelled", b.now); err != nil {
		b.t.Fatalf("cancel: %v", err)
	}
	b.wantAppended(b.publish(b.event("dropped", "", "gone"))[0], false, 0)
	b.wantAppended(b.publish(b.event("cancelled", "", "h"))[0], false, 0)
	b.none("w", "h", "gone")
}

func sameIDInOneCall(b *bed) {
	second := b.event("e", "other", "h", "g")
	second.Payload = []byte(`"other"`)
	got := b.publish(b.event("e", "k", "h"), second, b.event("f", "k", "h", "h"), b.event("e", "k", "g"))
	b.wantAppended(got[0], true, 1)
	b.wantAppended(got[1], false, 1)
	b.wantAppended(got[2], true, 1)
	b.wantAppended(got[3], false, 0)
	event, deliveries, err := b.s.GetEvent(b.ctx(), "e")
	if err != nil || event.Key != "k" || string(event.Payload) != `{"id":"e"}` || len(deliveries) != 2 {
		b.t.Errorf("the event is %+v with %d deliveries, %v", event, len(deliveries), err)
	}
	b.wantEvents(b.claim("w", plenty, "h"), "e")
	b.wantEvents(b.claim("w", plenty, "g"), "e")
}

func raceForID(b *bed) {
	const rounds, racers = 20, 6
	stores := []store.Store{b.s, b.open(), b.open()}
	for round := range rounds {
		id := numberedName("e", round)
		key := ""
		if round%2 == 0 {
			key = "k"
		}
		var inserted, committed [racers]bool
		var errs [racers]error
		var group sync.WaitGroup
		for i := range racers {
			s := stores[i%len(stores)]
			group.Go(func() {
				err := s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
					got, err := s.Append(ctx, tx, []store.NewEvent{newEvent(id, key, b.now, "h")}, b.now)
					if err != nil {
						return err
					}
					inserted[i] = got[0].Inserted
					if i == round%racers {
						return errUndo
					}
					return nil
				})
				committed[i] = err == nil
				if !errors.Is(err, errUndo) {
					errs[i] = err
				}
			})
		}
		group.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			b.t.Fatalf("round %d: %v", round, err)
		}
		count := 0
		for i := range racers {
			if inserted[i] && committed[i] {
				count++
			}
		}
		if count != 1 {
			b.t.Fatalf("round %d: %d committed transactions inserted one id", round, count)
		}
		b.complete("w", b.one("w", "h", id))
		b.none("w", "h")
	}
}

func raceForIDWithHandlers(b *bed) {
	const racers = 8
	stores := []store.Store{b.s, b.open(), b.open()}
	handlers := []string{"h0", "h1", "h2", "h3"}
	for round := range 10 {
		id := numberedName("e", round)
		var added [racers]int
		var errs [racers]error
		var group sync.WaitGroup
		for i := range racers {
			s := stores[i%len(stores)]
			group.Go(func() {
				mine := []string{handlers[i%4], handlers[(i+1)%4]}
				got, err := publish(b.ctx(), s, b.now, newEvent(id, "k", b.now, mine...))
				if errs[i] = err; err == nil {
					added[i] = got[0].Deliveries
				}
			})
		}
		group.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			b.t.Fatalf("round %d: %v", round, err)
		}
		total := 0
		for _, n := range added {
			total += n
		}
		if total != len(handlers) {
			b.t.Fatalf("round %d: %d deliveries were added for %d handlers", round, total, len(handlers))
		}
		got := b.claim("w", plenty, handlers...)
		if len(got) != len(handlers) {
			b.t.Fatalf("round %d: claimed %v", round, names(got))
		}
		b.complete("w", got...)
	}
}

func eventWithoutHandlers(b *bed) {
	b.wantAppended(b.publish(b.event("e", "k"))[0], true, 0)
	event, deliveries, err := b.s.GetEvent(b.ctx(), "e")
	if err != nil || event.ID != "e" || len(deliveries) != 0 {
		b.t.Fatalf("the event is %+v with %d deliveries, %v", event, len(deliveries), err)
	}
	b.publish(b.event("f", "k", "h"))
	b.complete("w", b.one("w", "h", "f"))
	b.wantAppended(b.publish(b.event("e", "k", "h"))[0], false, 1)
	b.complete("w", b.one("w", "h", "e"))
}

func sequencesOfBatch(b *bed) {
	var events []store.NewEvent
	for i := range 40 {
		key := fmt.Sprintf("k%d", (i*7)%5)
		if i%9 == 0 {
			key = ""
		}
		events = append(events, b.event(numberedName("e", i), key, "h"))
	}
	b.publish(events[:25]...)
	b.publish(events[25:]...)
	last := map[string]int64{}
	for _, e := range events {
		got, _, err := b.s.GetEvent(b.ctx(), e.ID)
		if err != nil {
			b.t.Fatalf("get %s: %v", e.ID, err)
		}
		if e.Key == "" {
			if got.Sequence != 0 {
				b.t.Errorf("%s has no key, but sequence %d", e.ID, got.Sequence)
			}
			continue
		}
		if got.Sequence <= last[e.Key] {
			b.t.Errorf("%s has sequence %d after %d", e.ID, got.Sequence, last[e.Key])
		}
		last[e.Key] = got.Sequence
	}
}

// sequencesOfTransactions: a transaction that began after another had committed
// has the higher sequence, whoever ran them.
func sequencesOfTransactions(b *bed) {
	const publishers, each = 6, 15
	stores := []store.Store{b.s, b.open(), b.open()}
	h := NewHistory()
	errs := make([]error, publishers)
	var group sync.WaitGroup
	for p := range publishers {
		s := stores[p%len(stores)]
		group.Go(func() {
			for i := range each {
				id := fmt.Sprintf("p%d-%d", p, i)
				publication := h.Publish(id, "k", "h")
				if _, err := publish(b.ctx(), s, b.now, newEvent(id, "k", b.now, "h")); err != nil {
					errs[p] = err
					return
				}
				publication.Committed()
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("publish: %v", err)
	}
	for range publishers * each {
		got := b.claim("w", plenty, "h")
		if len(got) != 1 {
			b.t.Fatalf("claimed %v of one key", names(got))
		}
		run := h.Start(got[0].Event, "h", got[0].Attempt)
		b.complete("w", got...)
		run.Completed()
	}
	h.Check(b.t)
}

func sequenceOfLateDelivery(b *bed) {
	b.publish(b.event("e1", "k", "h"))
	b.publish(b.event("e2", "k", "h", "g"))
	b.publish(b.event("e1", "k", "g"))
	first := b.one("w", "g", "e1")
	b.complete("w", first)
	second := b.one("w", "g", "e2")
	if first.Event.Sequence >= second.Event.Sequence {
		b.t.Errorf("sequences %d and %d", first.Event.Sequence, second.Event.Sequence)
	}
	b.complete("w", second)
	b.complete("w", b.one("w", "h", "e1"))
}

func batchesOverSameKeys(b *bed) {
	const publishers, rounds, keys = 6, 5, 12
	stores := []store.Store{b.s, b.open(), b.open()}
	errs := make([]error, publishers)
	var group sync.WaitGroup
	for p := range publishers {
		s := stores[p%len(stores)]
		random := rand.New(rand.NewPCG(uint64(p), 6))
		group.Go(func() {
			for round := range rounds {
				var events []store.NewEvent
				for _, k := range random.Perm(keys) {
					events = append(events, newEvent(fmt.Sprintf("e-%d-%d-%d", p, round, k), numberedName("k", k), b.now, "h"))
				}
				if _, err := publish(b.ctx(), s, b.now, events...); err != nil {
					errs[p] = err
					return
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatalf("publish batches over the same keys: %v", err)
	}
	b.counts(publishers*rounds*keys, 0, 0)
}

func largeBatch(b *bed, fresh bool) {
	const n = 1200
	var events []store.NewEvent
	for i := range n {
		key := ""
		if i%3 == 0 {
			key = numberedName("k", i%50)
		}
		e := b.event(numberedName("e", i), key, "h")
		e.Type = fmt.Sprintf("type%d.v1", i%7)
		if i%4 == 0 {
			e.Handlers = append(e.Handlers, store.Handler{ID: "g"})
		}
		e.Fresh = fresh
		events = append(events, e)
	}
	for i, got := range b.publish(events...) {
		if !got.Inserted || got.Deliveries != len(events[i].Handlers) {
			b.t.Fatalf("event %d: append reported %+v", i, got)
		}
	}
	b.counts(n+n/4, 0, 0)
	for i := range events {
		events[i].Fresh = false
	}
	got := b.publish(events...)
	if slices.ContainsFunc(got, func(a store.Appended) bool { return a.Inserted || a.Deliveries != 0 }) {
		b.t.Error("the second append of a batch added something")
	}
}

// sequencesOfFresh appends in one transaction as a caller does that publishes again
// and again, with ids of its own and without.
func sequencesOfFresh(b *bed) {
	var ids []string
	err := b.s.Transact(b.ctx(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		for i := range 9 {
			e := b.event(numberedName("e", i), "k", "h")
			e.Fresh = i%3 != 1
			ids = append(ids, e.ID)
			got, err := b.s.Append(ctx, tx, []store.NewEvent{e}, b.now)
			if err != nil {
				return err
			}
			b.wantAppended(got[0], true, 1)
		}
		return nil
	})
	if err != nil {
		b.t.Fatalf("append: %v", err)
	}
	for range ids {
		got := b.claim("w", plenty, "h")
		if len(got) != 1 || got[0].Event.ID != ids[0] {
			b.t.Fatalf("claimed %v, want %s", got, ids[0])
		}
		b.complete("w", got...)
		ids = ids[1:]
	}
}

func delayedEvent(b *bed) {
	late := b.event("late", "", "h")
	late.DueAt = b.now.Add(term)
	b.publish(late, b.event("now", "", "h"))
	b.complete("w", b.one("w", "h", "now"))
	b.pass(term - time.Millisecond)
	b.none("w", "h")
	b.pass(time.Millisecond)
	got := b.one("w", "h", "late")
	if !got.DueAt.Equal(late.DueAt) {
		b.t.Errorf("due at %v, want %v", got.DueAt, late.DueAt)
	}
	b.complete("w", got)
}
