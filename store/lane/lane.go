package lane

// Count is the number of lanes.
const Count = 256

const (
	fnvOffset = 2166136261
	fnvPrime  = 16777619
)

// Of returns the lane of a delivery: FNV-1a (32 bits) of the UTF-8 bytes of
// the ordering key, or of the event id when there is no key, modulo 256.
func Of(key, eventID string) uint8 {
	text := key
	if text == "" {
		text = eventID
	}
	hash := uint32(fnvOffset)
	for i := range len(text) {
		hash ^= uint32(text[i])
		hash *= fnvPrime
	}
	return uint8(hash % Count)
}
