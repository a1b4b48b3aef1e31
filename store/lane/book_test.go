package lane_test

import (
	"testing"

	"github.com/relaybus-go/relaybus/store/lane"
)

func token(claims int64) lane.Token { return lane.Token{Lane: 3, Epoch: 2, Claims: claims} }

func TestBookKnowsWhatRuns(t *testing.T) {
	t.Parallel()
	b := lane.NewBook[int, string]()
	k := lane.HandlerKey[string]{Handler: "h", Key: "k"}
	b.Add(1, "h", "k", token(0))
	b.Add(2, "h", "", token(5))
	if b.Len() != 2 || !b.Holds(1, token(0)) || !b.Holds(2, token(5)) {
		t.Error("the book does not hold what was added")
	}
	if b.Holds(1, token(1)) || b.Holds(3, token(0)) {
		t.Error("the book holds what was not added")
	}
	if !b.Busy(k) {
		t.Error("the key of a running delivery is not busy")
	}
	if b.Busy(lane.HandlerKey[string]{Handler: "i", Key: "k"}) || b.Busy(lane.HandlerKey[string]{Handler: "h"}) {
		t.Error("a key of which nothing runs is busy")
	}
	seen := make(map[int]lane.Token)
	b.Each(func(d int, t lane.Token) bool {
		seen[d] = t
		return true
	})
	if len(seen) != 2 || seen[1] != token(0) || seen[2] != token(5) {
		t.Errorf("Each gave %v", seen)
	}
	calls := 0
	b.Each(func(int, lane.Token) bool {
		calls++
		return false
	})
	if calls != 1 {
		t.Errorf("Each went on after false: %d calls", calls)
	}
	b.Remove(1, token(0))
	if b.Busy(k) || b.Holds(1, token(0)) || b.Len() != 1 {
		t.Error("a removed delivery still counts")
	}
}

func TestBookRemovesOnlyTheClaimItWasTold(t *testing.T) {
	t.Parallel()
	b := lane.NewBook[int, string]()
	k := lane.HandlerKey[string]{Handler: "h", Key: "k"}
	b.Add(1, "h", "k", token(0))
	// The claim ended without the book, and the next claim took it again.
	b.Add(1, "h", "k", token(1))
	r := b.Begin()
	b.Remove(1, token(0))
	b.Remove(2, token(0))
	if !b.Holds(1, token(1)) || !b.Busy(k) || b.Len() != 1 {
		t.Error("a late removal of an earlier claim ended the current one")
	}
	b.Remove(1, token(1))
	if b.Len() != 0 || b.Busy(k) {
		t.Error("the key is counted twice")
	}
	if !b.Ran(r, 1) || b.Ran(r, 2) {
		t.Error("Ran is wrong about what ended during the reading")
	}
	b.End(r)
}

func TestBookReadings(t *testing.T) {
	t.Parallel()
	b := lane.NewBook[int, string]()
	b.Add(1, "h", "", token(0))
	b.Add(2, "h", "", token(0))
	b.Add(3, "h", "", token(0))
	b.Remove(1, token(0))
	r := b.Begin()
	if b.Ran(r, 1) {
		t.Error("what ended before the reading counts as running")
	}
	if !b.Ran(r, 2) {
		t.Error("what runs does not count as running")
	}
	b.Remove(2, token(0))
	if !b.Ran(r, 2) {
		t.Error("what ended during the reading is offered to it")
	}
	later := b.Begin()
	if b.Ran(later, 2) {
		t.Error("what ended before a second reading began counts as running in it")
	}
	b.Remove(3, token(0))
	if !b.Ran(r, 3) || !b.Ran(later, 3) {
		t.Error("what ended during both readings is offered to one of them")
	}
	b.End(r)
	if !b.Ran(later, 3) {
		t.Error("the end of one reading made another one forget")
	}
	b.End(later)
	if b.Ran(later, 3) {
		t.Error("a closed reading is still remembered")
	}
	b.Add(3, "h", "", token(1))
	last := b.Begin()
	b.Remove(3, token(1))
	b.Add(3, "h", "", token(2))
	b.Remove(3, token(1))
	if !b.Ran(last, 3) || !b.Holds(3, token(2)) {
		t.Error("a delivery that was claimed again does not run")
	}
	b.End(last)
	b.End(last)
}

// A reading that stays open must not make a later one blind, nor the book grow
// for ever once it is closed.
func TestBookForgetsWhatNoReadingNeeds(t *testing.T) {
	t.Parallel()
	b := lane.NewBook[int, string]()
	first := b.Begin()
	for d := range 100 {
		b.Add(d, "h", "", token(0))
		b.Remove(d, token(0))
	}
	second := b.Begin()
	b.End(first)
	for d := range 100 {
		if b.Ran(first, d) {
			t.Fatalf("delivery %d is remembered for a closed reading", d)
		}
		if b.Ran(second, d) {
			t.Fatalf("delivery %d ended before the second reading", d)
		}
	}
	b.End(second)
}
