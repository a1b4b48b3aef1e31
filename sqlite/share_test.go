package sqlite_test

import (
	"testing"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

// A handler with more blocked deliveries than a claim may read does not keep
// the work of another one from being found.
func TestBlockedBacklogLeavesOthersTheirShare(t *testing.T) {
	t.Parallel()
	b := newBed(t, sqlite.Config{Synchronous: sqlite.Normal})
	var keys []string
	used := make(map[uint8]bool)
	for n := 0; len(keys) < 8; n++ {
		key := "k" + string(rune('a'+n))
		if l := lane.Of(key, ""); !used[l] {
			used[l] = true
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		b.publish(b.events(1, key, "busy")...)
	}
	for _, c := range b.claim(len(keys), "busy") {
		held := []store.Settlement{{Lease: c.Lease, Action: store.Bury, Hold: true}}
		if _, err := b.s.Settle(t.Context(), "w", held, b.now); err != nil {
			t.Fatalf("bury: %v", err)
		}
	}
	// The quiet handler was served last, so that the busy one goes first.
	b.publish(b.events(1, "", "quiet")...)
	b.complete(b.claim(1, "quiet")...)
	for range 2 {
		for _, key := range keys {
			b.publish(b.events(2*lane.ScanSlack, key, "busy")...)
		}
	}
	b.publish(b.event("quiet", "", "quiet"))
	got := b.claim(10, "busy", "quiet")
	if len(got) == 0 {
		got = b.claim(10, "busy", "quiet")
	}
	if len(got) != 1 || got[0].Event.ID != "quiet" {
		t.Errorf("claimed %v in two claims", got)
	}
}
