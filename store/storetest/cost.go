package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func costCases() []testCase {
	return []testCase{
		{name: "S6 Z16 a claim and a completion cost a fixed number of transactions", needs: needsTransactions, run: fixedTransactions},
		{name: "S6 a claim changes nothing of a delivery", run: claimWritesNothing},
		{name: "S10 F12 Z15 rows read behind one blocked key", needs: needsRowsRead, run: rowsBehindKey},
		{name: "S10 F12 rows read beside a large backlog of the handler", needs: needsRowsRead, run: rowsBesideBacklog},
		{name: "S10 F12 Z9 rows read beside others' work", needs: needsRowsRead, run: rowsBesideOthers},
		{name: "S10 F12 rows read by an idle claim", needs: needsRowsRead, run: rowsOfIdleClaim},
		{name: "S6 F12 rows read by a completion", needs: needsRowsRead, run: rowsOfCompletion},
		{name: "Z7 transactional completions of one event never conflict", run: completionsOfOneEvent},
	}
}

// slack is what a claim may read beyond its limit: the lanes of one handler,
// its own lease, its claims, and a page or two of odds and ends.
const slack = 2000

func (b *bed) backlog() int {
	if b.backend.Backlog > 0 {
		return b.backend.Backlog
	}
	return 10_000
}

// cost is how much a counter grows while f runs.
func cost(counter func() int64, f func()) int64 {
	before := counter()
	f()
	return counter() - before
}

func fixedTransactions(b *bed) {
	b.publish(b.numbered("warm", 50, "", "h")...)
	b.complete("w", b.claim("w", plenty, "h")...)
	costs := map[int][2]int64{}
	for _, n := range []int{1, 10, 100, 300} {
		b.publish(b.numbered(numberedName("e", n), n, "", "h")...)
		var got []store.Claimed
		claim := cost(b.db.Counters.Transactions, func() { got = b.claim("w", n, "h") })
		if len(got) != n {
			b.t.Fatalf("claimed %d, want %d", len(got), n)
		}
		costs[n] = [2]int64{claim, cost(b.db.Counters.Transactions, func() { b.complete("w", got...) })}
	}
	for n, c := range costs {
		// Taking lanes costs a logarithm more.
		if c[0] > 6 || c[1] > 2 {
			b.t.Errorf("%d deliveries: the claim cost %d transactions, the completion %d", n, c[0], c[1])
		}
	}
}

func claimWritesNothing(b *bed) {
	b.publish(append(b.numbered("e", 20, "", "h"), b.numbered("k", 40, "k", "h")...)...)
	before := map[string]string{}
	for _, d := range b.list(store.Filter{}) {
		before[d.ID.EventID] = d.DueAt.String() + d.UpdatedAt.String() + d.Error
	}
	b.pass(time.Second)
	got := b.claim("w", plenty, "h")
	for _, d := range b.list(store.Filter{}) {
		if now := d.DueAt.String() + d.UpdatedAt.String() + d.Error; now != before[d.ID.EventID] || d.Attempts != 0 {
			b.t.Errorf("a claim changed %s from %s to %s", d.ID.EventID, before[d.ID.EventID], now)
		}
	}
	b.complete("w", got...)
}

// rowsBehindKey: what waits behind a blocked key is read a bounded number of
// times in all, and a bounded number in one claim.
func rowsBehindKey(b *bed) {
	n := b.backlog()
	b.publishMany(b.numbered("hot", n, "hot", "h"))
	head := b.claim("w", 1, "h")
	b.wantEvents(head, "hot-0")
	// Parking: each claim is bounded, and all of them together read the
	// backlog a small number of times.
	const most = 4*1000 + slack
	var total int64
	for turn := range 3 + n/500 {
		rows := cost(b.db.Counters.RowsRead, func() { b.none("w", "h") })
		if total += rows; rows > most {
			b.t.Fatalf("claim %d read %d rows, want at most %d", turn, rows, most)
		}
	}
	if limit := int64(6*n + 100*slack); total > limit {
		b.t.Errorf("parking %d deliveries read %d rows, want at most %d", n, total, limit)
	}
	// From here on the blocked key costs nothing.
	b.pass(time.Second)
	for turn := range 20 {
		b.publish(b.numbered(numberedName("e", turn), 10, "", "h")...)
		var got []store.Claimed
		rows := cost(b.db.Counters.RowsRead, func() { got = b.claim("w", 10, "h") })
		if len(got) != 10 {
			b.t.Fatalf("claimed %d beside a blocked key, want 10", len(got))
		}
		if rows > 10*10+slack {
			b.t.Errorf("claim %d of 10 read %d rows beside a blocked key", turn, rows)
		}
		b.complete("w", got...)
	}
	// And moving on costs the same for each step.
	for i := range 20 {
		var next []store.Claimed
		rows := cost(b.db.Counters.RowsRead, func() {
			b.complete("w", head...)
			next = b.claim("w", 1, "h")
		})
		b.wantEvents(next, numberedName("hot", i+1))
		if rows > 10+slack {
			b.t.Errorf("step %d of the key read %d rows", i, rows)
		}
		head = next
	}
}

func rowsBesideBacklog(b *bed) {
	b.publishMany(b.numbered("e", b.backlog(), "", "h"))
	future := b.numbered("future", b.backlog()/4, "", "h")
	for i := range future {
		future[i].DueAt = b.now.Add(24 * time.Hour)
	}
	b.publishMany(future)
	for turn := range 10 {
		var got []store.Claimed
		rows := cost(b.db.Counters.RowsRead, func() { got = b.claim("w", 10, "h") })
		if len(got) != 10 {
			b.t.Fatalf("claimed %d, want 10", len(got))
		}
		if rows > 10*10+slack {
			b.t.Errorf("claim %d of 10 from a large backlog read %d rows", turn, rows)
		}
		b.complete("w", got...)
	}
}

func rowsBesideOthers(b *bed) {
	n := b.backlog()
	b.record(entry("paused", nil))
	b.publishMany(b.numbered("other", n/2, "", "unknown"))
	b.publishMany(b.numbered("paused", n/4, "", "paused"))
	b.publishMany(b.numbered("key", n/4, "hot", "unknown"))
	b.pause("paused", true)
	b.pass(time.Second)
	for turn := range 10 {
		b.publish(b.numbered(numberedName("e", turn), 5, "", "h")...)
		var got []store.Claimed
		rows := cost(b.db.Counters.RowsRead, func() { got = b.claim("w", 10, "h", "paused") })
		if len(got) != 5 {
			b.t.Fatalf("claimed %d, want 5", len(got))
		}
		if rows > 10*10+slack {
			b.t.Errorf("claim %d read %d rows beside others' work", turn, rows)
		}
		b.complete("w", got...)
	}
}

func rowsOfIdleClaim(b *bed) {
	future := b.numbered("future", b.backlog()/2, "", "h")
	for i := range future {
		future[i].DueAt = b.now.Add(24 * time.Hour)
	}
	b.publishMany(future)
	for turn := range 5 {
		b.pass(time.Second)
		if rows := cost(b.db.Counters.RowsRead, func() { b.none("w", "h") }); rows > slack {
			b.t.Errorf("idle claim %d read %d rows", turn, rows)
		}
	}
}

func rowsOfCompletion(b *bed) {
	b.publishMany(b.numbered("e", b.backlog()/4, "", "h"))
	got := b.claim("w", 100, "h")
	if rows := cost(b.db.Counters.RowsRead, func() { b.complete("w", got...) }); rows > 10*100+slack {
		b.t.Errorf("a completion of 100 read %d rows", rows)
	}
	b.publish(b.numbered("k", 300, "k", "g")...)
	head := b.claim("w", 1, "g")
	b.none("w", "g")
	if rows := cost(b.db.Counters.RowsRead, func() { b.complete("w", head...) }); rows > 10+slack {
		b.t.Errorf("the completion of a key with followers read %d rows", rows)
	}
}

// completionsOfOneEvent: the handlers of one event complete it in their own
// transactions, at once.
func completionsOfOneEvent(b *bed) {
	handlers := []string{"h0", "h1", "h2", "h3", "h4", "h5"}
	for round := range 5 {
		id := numberedName("e", round)
		b.publish(b.event(id, "k", handlers...))
		got := b.claim("w", plenty, handlers...)
		if len(got) != len(handlers) {
			b.t.Fatalf("claimed %v", names(got))
		}
		errs := make([]error, len(got))
		var group sync.WaitGroup
		for i, c := range got {
			group.Go(func() {
				errs[i] = b.s.Transact(b.ctx(), store.TxOptions{Lazy: true}, func(ctx context.Context, tx store.Tx) error {
					return b.s.CompleteTx(ctx, tx, "w", c.Lease, b.now)
				})
			})
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			b.t.Fatalf("round %d: %v", round, err)
		}
	}
	b.counts(0, 0, 0)
}
