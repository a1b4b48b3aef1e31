package lane

// FirstRound is how many free lanes a claim takes at most in its first round.
const FirstRound = 4

// Rounds returns how many free lanes to take in round n, which counts from 0:
// 4, 8, 16, … up to all of them.
func Rounds(n int) int {
	take := FirstRound
	for ; n > 0 && take < Count; n-- {
		take *= 2
	}
	return min(take, Count)
}

// Shares divides the limit of a claim among handlers. wants[i] is how many
// deliveries handler i takes at most; only handlers that have due work should
// be counted, the others want 0. Each handler that wants something gets one
// before any gets two, and so on; when there are more handlers than the limit,
// those from start on are served first; start counts round the list. A caller
// that moves start on by limit with each claim serves every handler within
// ceil(handlers/limit) claims.
func Shares(limit int, wants []int, start int) []int {
	shares := make([]int, len(wants))
	if len(wants) == 0 {
		return shares
	}
	start = (start%len(wants) + len(wants)) % len(wants)
	open := 0
	for _, want := range wants {
		if want > 0 {
			open++
		}
	}
	for limit > 0 && open > 0 {
		each := max(limit/open, 1)
		for i := 0; i < len(wants) && limit > 0; i++ {
			at := (start + i) % len(wants)
			take := min(each, wants[at]-shares[at], limit)
			if take <= 0 {
				continue
			}
			shares[at] += take
			limit -= take
			if shares[at] == wants[at] {
				open--
			}
		}
	}
	return shares
}
