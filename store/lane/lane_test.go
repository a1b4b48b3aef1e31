package lane_test

import (
	"hash/fnv"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/store/lane"
)

// The vectors are from the FNV reference (test vectors of draft-eastlake-fnv);
// the lane is the hash's last byte.
func TestOfKnownVectors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		hash uint32
	}{
		{"a", 0xe40c292c},
		{"b", 0xe70c2de5},
		{"c", 0xe60c2c52},
		{"foobar", 0xbf9cf968},
		{"fo", 0x6222e842},
		{"foo", 0xa9f37ed7},
		{"foob", 0x3f5076ef},
	} {
		if got := lane.Of(test.text, "ignored"); got != uint8(test.hash&0xff) {
			t.Errorf("Of(%q) = %d, want %d", test.text, got, test.hash&0xff)
		}
	}
}

func TestOfIsFNV1aOfBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"order-1", "Grüße", "日本", "\xff\x00", strings.Repeat("k", 256)} {
		sum := fnv.New32a()
		if _, err := sum.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := lane.Of(text, ""); uint32(got) != sum.Sum32()%lane.Count {
			t.Errorf("Of(%q) = %d, want %d", text, got, sum.Sum32()%lane.Count)
		}
	}
}

func TestOfTakesTheEventIDOnlyWithoutKey(t *testing.T) {
	t.Parallel()
	if lane.Of("", "foobar") != lane.Of("foobar", "") {
		t.Error("without a key the lane is not that of the event id")
	}
	if lane.Of("a", "b") != lane.Of("a", "c") {
		t.Error("with a key the event id changes the lane")
	}
	// The hash of nothing is the offset basis, 0x811c9dc5.
	if got := lane.Of("", ""); got != 0xc5 {
		t.Errorf("Of of nothing = %#x, want 0xc5", got)
	}
}

func TestOfReachesEveryLane(t *testing.T) {
	t.Parallel()
	seen := make(map[uint8]bool)
	for i := range 10_000 {
		seen[lane.Of("", "event-"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+string(rune('A'+i/26%26)))] = true
	}
	if len(seen) != lane.Count {
		t.Errorf("4,732 ids reach %d lanes, want all %d", len(seen), lane.Count)
	}
}
