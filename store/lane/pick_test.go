package lane_test

import (
	"slices"
	"testing"

	"github.com/relaybus-go/relaybus/store/lane"
)

type candidate = lane.Candidate[string]

func TestPickerVerdicts(t *testing.T) {
	t.Parallel()
	busy := func(hk lane.HandlerKey[string]) bool { return hk == lane.HandlerKey[string]{Handler: "h", Key: "busy"} }
	for _, test := range []struct {
		name   string
		limit  int
		allow  map[string]int
		offers []candidate
		want   []lane.Verdict
	}{
		{
			"unkeyed ones up to the share", 10,
			map[string]int{"h": 2},
			[]candidate{{Handler: "h"}, {Handler: "h"}, {Handler: "h"}},
			[]lane.Verdict{lane.Take, lane.Take, lane.Full},
		},
		{
			"unkeyed ones up to the limit", 1,
			map[string]int{"h": 5, "i": 5},
			[]candidate{{Handler: "h"}, {Handler: "i"}},
			[]lane.Verdict{lane.Take, lane.Full},
		},
		{
			"a handler without a share", 10, nil,
			[]candidate{{Handler: "h"}, {Handler: "h", Key: "k", Sequence: 1, Head: 1}},
			[]lane.Verdict{lane.Full, lane.Full},
		},
		{
			"never two of a key", 10,
			map[string]int{"h": 9},
			[]candidate{
				{Handler: "h", Key: "k", Sequence: 1, Head: 1},
				{Handler: "h", Key: "k", Sequence: 2, Head: 1},
				{Handler: "h", Key: "k", Sequence: 1, Head: 1},
			},
			[]lane.Verdict{lane.Take, lane.Blocked, lane.Blocked},
		},
		{
			"never behind an unfinished one that is not due", 10,
			map[string]int{"h": 9},
			[]candidate{{Handler: "h", Key: "k", Sequence: 5, Head: 4}},
			[]lane.Verdict{lane.Blocked},
		},
		{
			"a key is one handler's", 10,
			map[string]int{"h": 9, "i": 9},
			[]candidate{
				{Handler: "h", Key: "k", Sequence: 1, Head: 1},
				{Handler: "i", Key: "k", Sequence: 1, Head: 1},
				{Handler: "h", Key: "l", Sequence: 2, Head: 2},
			},
			[]lane.Verdict{lane.Take, lane.Take, lane.Take},
		},
		{
			"not beside a running one that was read", 10,
			map[string]int{"h": 9},
			[]candidate{
				{Handler: "h", Key: "k", Sequence: 2, Head: 1, Runs: true},
				{Handler: "h", Key: "k", Sequence: 1, Head: 1},
			},
			[]lane.Verdict{lane.Running, lane.Blocked},
		},
		{
			"not beside a running one that was not read", 10,
			map[string]int{"h": 9, "i": 9},
			[]candidate{
				{Handler: "h", Key: "busy", Sequence: 1, Head: 1},
				{Handler: "i", Key: "busy", Sequence: 1, Head: 1},
			},
			[]lane.Verdict{lane.Blocked, lane.Take},
		},
		{
			"a running one costs no room", 1,
			map[string]int{"h": 1},
			[]candidate{{Handler: "h", Runs: true}, {Handler: "h"}},
			[]lane.Verdict{lane.Running, lane.Take},
		},
		{
			"a full head leaves its key open", 10,
			map[string]int{"h": 0},
			[]candidate{
				{Handler: "h", Key: "k", Sequence: 1, Head: 1},
				{Handler: "h", Key: "k", Sequence: 2, Head: 1},
			},
			[]lane.Verdict{lane.Full, lane.Blocked},
		},
	} {
		p := lane.NewPicker(test.limit, busy)
		for h, n := range test.allow {
			p.Allow(h, n)
		}
		for i, c := range test.offers {
			if got := p.Offer(c); got != test.want[i] {
				t.Errorf("%s: offer %d = %d, want %d", test.name, i, got, test.want[i])
			}
		}
	}
}

func TestPickerRoom(t *testing.T) {
	t.Parallel()
	p := lane.NewPicker[string](3, nil)
	if p.Room("h") != 0 || p.Left() != 3 {
		t.Errorf("at first: room %d, left %d, want 0 and 3", p.Room("h"), p.Left())
	}
	p.Allow("h", 1)
	p.Allow("i", 9)
	if p.Room("h") != 1 || p.Room("i") != 3 {
		t.Errorf("allowed: room %d and %d, want 1 and 3", p.Room("h"), p.Room("i"))
	}
	p.Offer(candidate{Handler: "h"})
	if p.Room("h") != 0 || p.Room("i") != 2 || p.Left() != 2 {
		t.Errorf("after one: room %d and %d, left %d, want 0, 2 and 2", p.Room("h"), p.Room("i"), p.Left())
	}
	p.Allow("h", 1)
	if got := p.Offer(candidate{Handler: "h", Key: "k", Sequence: 1, Head: 1}); got != lane.Take {
		t.Errorf("a second allowance: %d, want Take", got)
	}
}

func TestPickerParksCrowdedKeys(t *testing.T) {
	t.Parallel()
	p := lane.NewPicker[string](1, nil)
	p.Allow("h", 1)
	blocked := func(key string, n int) {
		for i := range n {
			p.Offer(candidate{Handler: "h", Key: key, Sequence: int64(2 + i), Head: 1})
		}
	}
	blocked("few", lane.ParkAt-1)
	blocked("many", lane.ParkAt)
	if got := p.Waiting("h", "few"); got != lane.ParkAt-1 {
		t.Errorf("waiting = %d, want %d", got, lane.ParkAt-1)
	}
	if got := p.Waiting("i", "few"); got != 0 {
		t.Errorf("waiting of another handler = %d, want 0", got)
	}
	many := lane.HandlerKey[string]{Handler: "h", Key: "many"}
	if got := p.Park(false); !slices.Equal(got, []lane.HandlerKey[string]{many}) {
		t.Errorf("Park(false) = %v, want only %v", got, many)
	}
	if got := p.Park(true); len(got) != 2 {
		t.Errorf("Park(true) = %v, want both keys", got)
	}
}
