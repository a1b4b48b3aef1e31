package lane

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// ErrToken is returned for a text that is no lease token.
var ErrToken = errors.New("malformed lease token")

// Token fences one claim of one delivery. Its text is "<lane>:<epoch>:<claims>".
type Token struct {
	// Lane is the lane of the delivery.
	Lane uint8
	// Epoch is the lane's epoch when the delivery was claimed, at least 1.
	Epoch int64
	// Claims is the delivery's claim generation: how many claims of it have
	// ended before this one.
	Claims int64
}

// String returns the token's text.
func (t Token) String() string {
	buf := make([]byte, 0, 32)
	buf = strconv.AppendUint(buf, uint64(t.Lane), 10)
	buf = append(buf, ':')
	buf = strconv.AppendInt(buf, t.Epoch, 10)
	buf = append(buf, ':')
	buf = strconv.AppendInt(buf, t.Claims, 10)
	return string(buf)
}

// Valid reports whether a store can have issued the token: the epoch is at
// least 1 and the generation not negative.
func (t Token) Valid() bool { return t.Epoch >= 1 && t.Claims >= 0 }

// ParseToken reads a token's text. It takes only what [Token.String] writes:
// no signs, spaces or leading zeros. Anything else is [ErrToken].
func ParseToken(text string) (Token, error) {
	laneText, rest, ok := strings.Cut(text, ":")
	if !ok {
		return Token{}, ErrToken
	}
	epochText, claimsText, ok := strings.Cut(rest, ":")
	if !ok {
		return Token{}, ErrToken
	}
	number, ok := parseNumber(laneText)
	epoch, okEpoch := parseNumber(epochText)
	claims, okClaims := parseNumber(claimsText)
	if !ok || !okEpoch || !okClaims || number > math.MaxUint8 {
		return Token{}, ErrToken
	}
	t := Token{Lane: uint8(number), Epoch: epoch, Claims: claims} //nolint:gosec // number is below 256
	if !t.Valid() {
		return Token{}, ErrToken
	}
	return t, nil
}

func parseNumber(text string) (int64, bool) {
	if text == "" || text[0] < '0' || text[0] > '9' || (text[0] == '0' && len(text) > 1) {
		return 0, false
	}
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil
}
