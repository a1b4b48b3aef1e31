package sqlite_test

import (
	"testing"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// A claim parks nothing that another owner runs, under whichever id of the handler.
func TestParkLeavesRunning(t *testing.T) {
	t.Parallel()
	a := newBed(t, sqlite.Config{Synchronous: sqlite.Normal})
	b := newBedAt(t, a.path, sqlite.Config{Synchronous: sqlite.Normal})
	a.publish(a.events(300, "k", "new")...)
	a.publish(a.event("runs", "k", "old"))
	runs := b.claim(1, "old")
	if len(runs) != 1 {
		t.Fatalf("claimed %v", runs)
	}
	r := a.request("other", 10)
	r.Handlers = []store.HandlerLimit{{Handler: store.Handler{ID: "new", Aliases: []string{"old"}}, Limit: 10}}
	if _, err := a.s.Claim(t.Context(), r); err != nil {
		t.Fatalf("claim: %v", err)
	}
	b.complete(runs...)
}
