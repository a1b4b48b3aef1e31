package main

import "fmt"

// order is the payload of every event.
type order struct {
	Number   int64  `json:"number"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	Note     string `json:"note"`
}

func newOrder(number int64) order {
	return order{
		Number:   number,
		Customer: fmt.Sprintf("customer-%d", number%1000),
		Cents:    100 + number%10_000,
		Note:     "leave it at the door, ring twice",
	}
}
