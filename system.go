package relaybus

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	mathrand "math/rand/v2"
	"os"
	"strconv"
	"sync"
)

// systemRandom is used for the jitter of retries.
func systemRandom() float64 { return mathrand.Float64() } //nolint:gosec // jitter needs no secrecy

// systemOwner is unique among the processes of all machines.
func systemOwner() string {
	host, err := os.Hostname()
	if err != nil || checkText(host, 100) != "" {
		host = "host"
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // it never fails: see crypto/rand
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(salt[:])
}

// ids makes UUIDs of version 7: they begin with the time, so that neighbours in
// time are neighbours in an index, and grow within one process.
type ids struct {
	clock Clock
	mu    sync.Mutex
	last  uint64 // 48 bits of milliseconds and 12 bits that count within one
}

func newIDs(clock Clock) *ids { return &ids{clock: clock} }

func (g *ids) next() string {
	now := uint64(max(g.clock.Now().UnixMilli(), 0)) << 12
	g.mu.Lock()
	g.last = max(now, g.last+1)
	stamp := g.last
	g.mu.Unlock()

	var id [16]byte
	_, _ = rand.Read(id[8:]) // it never fails: see crypto/rand
	binary.BigEndian.PutUint64(id[:8], stamp>>12<<16|0x7000|stamp&0xfff)
	id[8] = id[8]&0x3f | 0x80

	text := make([]byte, 36)
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text)
}
