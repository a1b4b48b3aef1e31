package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/relaybus-go/relaybus/store/lane"
)

// floorName is what the same writes made by hand are called: what keeps these rows
// can't be faster.
const floorName = "floor"

// row is an event that is ready to be written.
type row struct {
	id      string
	key     *string
	lane    uint8
	payload []byte
}

// newRows makes the rows that relaybus would.
func newRows(first int64, n int, milliseconds int64, keyed bool) ([]row, error) {
	rows := make([]row, n)
	for i := range rows {
		number := first + int64(i)
		payload, err := json.Marshal(newOrder(number))
		if err != nil {
			return nil, err
		}
		id := timeOrderedID(milliseconds, number)
		rows[i] = row{id: id, lane: lane.Of("", id), payload: payload}
		if keyed {
			key := orderKey(number)
			rows[i].key, rows[i].lane = &key, lane.Of(key, id)
		}
	}
	return rows, nil
}

func orderKey(number int64) string { return "order-" + strconv.FormatInt(number, 10) }

// timeOrderedID makes an id like those of relaybus: a UUID whose neighbours in
// time are neighbours in the index, and that grows with the number within one
// millisecond.
func timeOrderedID(milliseconds, number int64) string {
	var id [16]byte
	_, _ = rand.Read(id[8:])                                                                 // it never fails: see crypto/rand
	binary.BigEndian.PutUint64(id[:8], uint64(milliseconds)<<16|0x7000|uint64(number)&0xfff) //nolint:gosec // neither is negative
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
