package sqlite

import (
	"context"
	"encoding/json"
	"errors"
)

// listed is one delivery in a claim record.
type listed struct {
	owner, number       int64
	event, handler, gen int64
}

// claims reads claim records. The statement returns a number, which is kept as
// the owner, and the list.
func (x *session) claims(ctx context.Context, text string, args ...any) (all []listed, err error) {
	err = x.rows(ctx, text, func(scan func(...any) error) (bool, error) {
		var number int64
		var text string
		if err := scan(&number, &text); err != nil {
			return false, err
		}
		list, err := parseClaim(text)
		for _, l := range list {
			l.owner, l.number = number, number
			all = append(all, l)
		}
		return true, err
	}, args...)
	return all, err
}

var errClaimList = errors.New("malformed list of a claim record")

func parseClaim(text string) ([]listed, error) {
	var numbers []int64
	if err := json.Unmarshal([]byte(text), &numbers); err != nil {
		return nil, errors.Join(errClaimList, err)
	}
	if len(numbers)%3 != 0 {
		return nil, errClaimList
	}
	list := make([]listed, 0, len(numbers)/3)
	for i := 0; i < len(numbers); i += 3 {
		list = append(list, listed{event: numbers[i], handler: numbers[i+1], gen: numbers[i+2]})
	}
	return list, nil
}

func claimText(picks []candidate) string {
	numbers := make([]int64, 0, 3*len(picks))
	for _, d := range picks {
		numbers = append(numbers, d.event, d.ref, d.gen)
	}
	return numberList(numbers)
}
