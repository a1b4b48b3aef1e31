package lane_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/relaybus-go/relaybus/store/lane"
)

func TestRounds(t *testing.T) {
	t.Parallel()
	for n, want := range []int{4, 8, 16, 32, 64, 128, 256, 256, 256} {
		if got := lane.Rounds(n); got != want {
			t.Errorf("Rounds(%d) = %d, want %d", n, got, want)
		}
	}
	if got := lane.Rounds(1 << 40); got != lane.Count {
		t.Errorf("Rounds of a huge number = %d, want %d", got, lane.Count)
	}
	if got := lane.Rounds(-1); got != lane.FirstRound {
		t.Errorf("Rounds(-1) = %d, want %d", got, lane.FirstRound)
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit int
		wants []int
		start int
		want  []int
	}{
		{"nobody", 10, nil, 0, []int{}},
		{"nobody wants", 10, []int{0, 0}, 0, []int{0, 0}},
		{"no limit left", 0, []int{1, 2}, 0, []int{0, 0}},
		{"negative limit", -3, []int{1, 2}, 0, []int{0, 0}},
		{"negative want", 4, []int{-2, 3}, 0, []int{0, 3}},
		{"one takes all", 10, []int{100}, 0, []int{10}},
		{"all get what they want", 10, []int{3, 4}, 0, []int{3, 4}},
		{"even", 10, []int{100, 100}, 0, []int{5, 5}},
		{"the rest goes to the first", 10, []int{100, 100, 100}, 0, []int{4, 3, 3}},
		{"the rest goes to the start", 10, []int{100, 100, 100}, 2, []int{3, 3, 4}},
		{"what one does not want goes to others", 10, []int{1, 100, 100}, 0, []int{1, 5, 4}},
		{"a quiet one beside a busy one", 10, []int{1000, 1}, 0, []int{9, 1}},
		{"more handlers than limit", 2, []int{5, 5, 5, 5}, 0, []int{1, 1, 0, 0}},
		{"more handlers than limit, rotated", 2, []int{5, 5, 5, 5}, 3, []int{1, 0, 0, 1}},
		{"rotation passes over who wants nothing", 1, []int{5, 0, 0, 5}, 1, []int{0, 0, 0, 1}},
		{"start beyond the list", 1, []int{5, 5, 5}, 7, []int{0, 1, 0}},
		{"start before the list", 1, []int{5, 5, 5}, -1, []int{0, 0, 1}},
	} {
		if got := lane.Shares(test.limit, test.wants, test.start); !slices.Equal(got, test.want) {
			t.Errorf("%s: Shares(%d, %v, %d) = %v, want %v", test.name, test.limit, test.wants, test.start, got, test.want)
		}
	}
}

func TestSharesRules(t *testing.T) {
	t.Parallel()
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	for range 20_000 {
		limit := random.IntN(20)
		wants := make([]int, 1+random.IntN(12))
		total, open := 0, 0
		for i := range wants {
			wants[i] = max(random.IntN(12)-3, 0)
			total += wants[i]
			if wants[i] > 0 {
				open++
			}
		}
		start := random.IntN(2 * len(wants))
		shares := lane.Shares(limit, wants, start)
		sum := 0
		for i, share := range shares {
			sum += share
			if share < 0 || share > wants[i] {
				t.Fatalf("Shares(%d, %v, %d) = %v: more than is wanted", limit, wants, start, shares)
			}
			if wants[i] > 0 && share == 0 && open <= limit {
				t.Fatalf("Shares(%d, %v, %d) = %v: nothing for %d", limit, wants, start, shares, i)
			}
			for j, other := range shares {
				if share < wants[i] && other > share+1 {
					t.Fatalf("Shares(%d, %v, %d) = %v: %d gets much more than %d", limit, wants, start, shares, j, i)
				}
			}
		}
		if sum != min(limit, total) {
			t.Fatalf("Shares(%d, %v, %d) = %v: %d in all, want %d", limit, wants, start, shares, sum, min(limit, total))
		}
	}
}

// Z9: every handler with due work is served within ceil(handlers/limit) claims
// of a caller that moves start on by the limit.
func TestSharesServeEveryHandlerInTime(t *testing.T) {
	t.Parallel()
	for handlers := 1; handlers <= 20; handlers++ {
		for limit := 1; limit <= 20; limit++ {
			for first := range handlers {
				wants := slices.Repeat([]int{3}, handlers)
				served := make([]bool, handlers)
				start := first
				for range (handlers + limit - 1) / limit {
					for i, share := range lane.Shares(limit, wants, start) {
						served[i] = served[i] || share > 0
					}
					start += limit
				}
				if i := slices.Index(served, false); i >= 0 {
					t.Fatalf("%d handlers, limit %d, start %d: handler %d was not served", handlers, limit, first, i)
				}
			}
		}
	}
}
