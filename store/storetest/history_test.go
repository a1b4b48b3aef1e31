package storetest_test

import (
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/storetest"
)

// Each history breaks one rule, and the checker must say which.
func TestHistoryFindsViolations(t *testing.T) {
	t.Parallel()
	event := func(id string, sequence int64) store.Event {
		return store.Event{ID: id, Key: "k", Sequence: sequence}
	}
	publish := func(h *storetest.History, ids ...string) {
		for _, id := range ids {
			h.Publish(id, "k", "h").Committed()
		}
	}
	cases := []struct {
		name, want string
		record     func(h *storetest.History)
	}{
		{"clean", "", func(h *storetest.History) {
			publish(h, "a", "b")
			h.Start(event("a", 1), "h", 1).Failed()
			h.Start(event("a", 1), "h", 2).Completed()
			h.Start(event("b", 2), "h", 1).Buried()
			h.Publish("c", "k", "h").RolledBack()
			h.Publish("d", "k", "h")
		}},
		{"a takeover", "", func(h *storetest.History) {
			publish(h, "a")
			stalled := h.Start(event("a", 1), "h", 1)
			stalled.Fault()
			h.Start(event("a", 1), "h", 2).Completed()
			stalled.Refused()
			h.Effect("a", "h")
		}},
		{"lost", "I1: a for h was never executed", func(h *storetest.History) { publish(h, "a") }},
		{"not finished", "I1: none of 1", func(h *storetest.History) {
			publish(h, "a")
			h.Start(event("a", 1), "h", 1).Failed()
		}},
		{"pending", "I6: a for h is still pending", func(h *storetest.History) {
			publish(h, "a")
			h.Final("a", "h", store.StatusPending)
		}},
		{"phantom", "I2: a was executed for h, and never published", func(h *storetest.History) {
			h.Start(event("a", 1), "h", 1).Completed()
		}},
		{"rolled back", "I2: a was executed for h, but its publish was rolled back", func(h *storetest.History) {
			h.Publish("a", "k", "h").RolledBack()
			h.Start(event("a", 1), "h", 1).Completed()
		}},
		{"wrong handler", "I2: a was executed for g", func(h *storetest.History) {
			publish(h, "a")
			h.Start(event("a", 1), "h", 1).Completed()
			h.Start(event("a", 1), "g", 1).Completed()
		}},
		{"wrong key", "I2: a was published with key", func(h *storetest.History) {
			h.Publish("a", "other", "h").Committed()
			h.Start(event("a", 1), "h", 1).Completed()
		}},
		{"again", "I3: a was executed again for h after its completion", func(h *storetest.History) {
			publish(h, "a")
			h.Start(event("a", 1), "h", 1).Completed()
			h.Start(event("a", 1), "h", 1).Failed()
		}},
		{"at once", "I3: a was executed again for h while it ran", func(h *storetest.History) {
			publish(h, "a")
			first := h.Start(event("a", 1), "h", 1)
			h.Start(event("a", 1), "h", 1).Completed()
			first.Failed()
		}},
		{"two completions", "I5: 2 executions", func(h *storetest.History) {
			publish(h, "a")
			first := h.Start(event("a", 1), "h", 1)
			first.Fault()
			h.Start(event("a", 1), "h", 2).Completed()
			first.Completed()
		}},
		{"two effects", "I3: 2 effects", func(h *storetest.History) {
			h.Effect("a", "h")
			h.Effect("a", "h")
		}},
		{"overlap", "I4: b started for h while a", func(h *storetest.History) {
			publish(h, "a", "b")
			first := h.Start(event("a", 1), "h", 1)
			h.Start(event("b", 2), "h", 1).Completed()
			first.Completed()
		}},
		{"order", "started first after", func(h *storetest.History) {
			publish(h, "b", "a")
			h.Start(event("a", 2), "h", 1).Completed()
			h.Start(event("b", 1), "h", 1).Completed()
		}},
		{"commit order", "has the lower sequence", func(h *storetest.History) {
			publish(h, "a", "b")
			h.Start(event("b", 1), "h", 1).Completed()
			h.Start(event("a", 2), "h", 1).Completed()
		}},
		{"same sequence", "have the same sequence", func(h *storetest.History) {
			publish(h, "a", "b")
			h.Start(event("a", 1), "h", 1).Completed()
			h.Start(event("b", 1), "h", 1).Completed()
		}},
		{"open", "I6: an execution of a for h never ended", func(h *storetest.History) {
			publish(h, "a")
			h.Start(event("a", 1), "h", 1)
		}},
		{"ended twice", "ended twice", func(h *storetest.History) {
			publish(h, "a")
			x := h.Start(event("a", 1), "h", 1)
			x.Completed()
			x.Failed()
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := storetest.NewHistory()
			c.record(h)
			got := strings.Join(h.Violations(), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
