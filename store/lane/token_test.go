package lane_test

import (
	"errors"
	"math"
	"testing"

	"github.com/relaybus-go/relaybus/store/lane"
)

func TestTokenRoundTrip(t *testing.T) {
	t.Parallel()
	for text, token := range map[string]lane.Token{
		"0:1:0":    {Lane: 0, Epoch: 1, Claims: 0},
		"255:7:12": {Lane: 255, Epoch: 7, Claims: 12},
		"9:9223372036854775807:9223372036854775807": {Lane: 9, Epoch: math.MaxInt64, Claims: math.MaxInt64},
	} {
		if got := token.String(); got != text {
			t.Errorf("%#v prints as %q, want %q", token, got, text)
		}
		got, err := lane.ParseToken(text)
		if err != nil || got != token {
			t.Errorf("ParseToken(%q) = %#v, %v, want %#v", text, got, err, token)
		}
	}
}

func TestParseTokenRefusesWhatStringNeverWrites(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", ":", "::", "1", "1:1", "1:1:", ":1:1", "1::1", "1:1:1:1", "1:1:1:",
		"256:1:0", "-1:1:0", "+1:1:0", "01:1:0", "1:01:0", "1:1:00", " 1:1:0", "1:1:0 ", "1: 1:0", "1:1:0\n",
		"1:0:0", "1:-1:0", "1:1:-1", "1:9223372036854775808:0", "1:1:9223372036854775808",
		"1:99999999999999999999:0", "0x1:1:0", "1_0:1:0", "1e1:1:0", "١:1:0", "1:1:NaN", "1;1;0", "\x00:1:0",
	} {
		if got, err := lane.ParseToken(text); !errors.Is(err, lane.ErrToken) || got != (lane.Token{}) {
			t.Errorf("ParseToken(%q) = %#v, %v, want ErrToken", text, got, err)
		}
	}
}

func TestTokenValid(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		token lane.Token
		want  bool
	}{
		{lane.Token{}, false},
		{lane.Token{Epoch: 1}, true},
		{lane.Token{Lane: 255, Epoch: math.MaxInt64, Claims: math.MaxInt64}, true},
		{lane.Token{Epoch: -1}, false},
		{lane.Token{Epoch: 1, Claims: -1}, false},
	} {
		if got := test.token.Valid(); got != test.want {
			t.Errorf("%v valid: %t, want %t", test.token, got, test.want)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	for _, text := range []string{
		"", "0:1:0", "255:7:12", "256:1:0", "1:1", "1:1:1:1", "01:1:0", "1:0:0", "1:-1:0", "+1:1:1",
		"9:9223372036854775807:9223372036854775807", "9:9223372036854775808:0", "1:1:0\x00", "é:1:1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := lane.ParseToken(text)
		if err != nil {
			if !errors.Is(err, lane.ErrToken) || token != (lane.Token{}) {
				t.Errorf("ParseToken(%q) = %#v, %v, want a zero token and ErrToken", text, token, err)
			}
			return
		}
		if !token.Valid() {
			t.Errorf("ParseToken(%q) = %#v, which no store issues", text, token)
		}
		if got := token.String(); got != text {
			t.Errorf("ParseToken(%q) prints back as %q", text, got)
		}
	})
}
