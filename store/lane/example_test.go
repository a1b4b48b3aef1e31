package lane_test

import (
	"fmt"

	"github.com/relaybus-go/relaybus/store/lane"
)

func ExampleOf() {
	// The key decides; without one the id of the event does.
	fmt.Println(lane.Of("o-1", "event-7"), lane.Of("o-1", "event-8"), lane.Of("", "event-8"))
	// Output: 104 104 10
}

func ExampleParseToken() {
	token, err := lane.ParseToken("17:4:2")
	fmt.Println(token.Lane, token.Epoch, token.Claims, err)
	_, err = lane.ParseToken("17:04:2")
	fmt.Println(err)
	// Output:
	// 17 4 2 <nil>
	// malformed lease token
}

func ExamplePicker() {
	picker := lane.NewPicker[string](10, nil)
	picker.Allow("ledger", 10)
	for _, c := range []lane.Candidate[string]{
		{Handler: "ledger", Key: "o-1", Sequence: 1, Head: 1},
		{Handler: "ledger", Key: "o-1", Sequence: 2, Head: 1},
		{Handler: "ledger"},
	} {
		fmt.Println(c.Sequence, picker.Offer(c) == lane.Take)
	}
	// Output:
	// 1 true
	// 2 false
	// 0 true
}
