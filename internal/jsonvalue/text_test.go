package jsonvalue_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

func TestCheckStrings(t *testing.T) {
	t.Parallel()
	wantAccepted(t,
		`"\"\\\/\b\f\n\r\t\u00e9\uABCD\uabcd"`, `"é漢😀"`, `"\ud83d\ude00"`, `"\uDBFF\uDFFF"`,
		"\"\x7f\u2028\uffff\ufffd\"", `"\ufffd"`, `"\u0000"`, `["\u0000",{"a":"\u0000"}]`, `"\\u0000"`,
	)
	const syntax = jsonvalue.Syntax
	wantRefused(t,
		refused{`"`, syntax, 1}, refused{`"abc`, syntax, 4}, refused{`"\"`, syntax, 3},
		refused{`"\`, syntax, 1}, refused{`"\x"`, syntax, 1}, refused{`"a\u12"`, syntax, 2},
		refused{`"\u12g4"`, syntax, 1}, refused{`"\U0041"`, syntax, 1}, refused{`"\u`, syntax, 1},
	)
}

func TestCheckRefusesControlChars(t *testing.T) {
	t.Parallel()
	for c := range byte(0x20) {
		wantRefused(t, refused{`["a` + string(rune(c)) + `"]`, jsonvalue.ControlChar, 3})
	}
}

func TestCheckRefusesInvalidUTF8(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"\xff", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80",
	} {
		wantRefused(t,
			refused{`"é` + bad + `"`, jsonvalue.InvalidUTF8, 3},
			refused{`{"a` + bad + `":1}`, jsonvalue.InvalidUTF8, 3},
		)
	}
}

func TestCheckRefusesLoneSurrogates(t *testing.T) {
	t.Parallel()
	const lone = jsonvalue.LoneSurrogate
	wantRefused(t,
		refused{`"\ud83d"`, lone, 1}, refused{`"a\ude00"`, lone, 2}, refused{`"\ude00\ud83d"`, lone, 1},
		refused{`"\ud83d\ud83d\ude00"`, lone, 1}, refused{`"\ud83d\ude00\ude00"`, lone, 13},
		refused{`"\ud83dx\ude00"`, lone, 1}, refused{`"\ud83d\u0041"`, lone, 1}, refused{`"\ud83d\n"`, lone, 1},
		refused{`"\ud83d\ufffd"`, lone, 1}, refused{`{"\uD800":1}`, lone, 2}, refused{`"\ud83d\\ude00"`, lone, 1},
	)
}

func TestHasEscapedReplacement(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		``: false, `"\ufffd"`: true, `"\uFFFD"`: true, `"\uFffD"`: true, `["a",{"b\ufffd":1}]`: true,
		`"\\ufffd"`: false, `"\\\ufffd"`: true, `"\\\\ufffd"`: false, `"\"\ufffd"`: true, "\"\ufffd\"": false,
		`"\ufffe"`: false, `"\u0041fffd"`: false, `"\n\u00e9"`: false, `"\ufff`: false, `\`: false, `"\\`: false,
	} {
		if got := jsonvalue.HasEscapedReplacement([]byte(text)); got != want {
			t.Errorf("HasEscapedReplacement(%s) = %v, want %v", text, got, want)
		}
	}
}

// The function rests on what encoding/json does; this fails when a Go release
// changes it.
func TestHasEscapedReplacementOfMarshalOutput(t *testing.T) {
	t.Parallel()
	type record struct {
		Text string            `json:"text"`
		Map  map[string]string `json:"map"`
	}
	for name, c := range map[string]struct {
		value any
		want  bool
	}{
		"valid":              {"é😀", false},
		"real replacement":   {"a\ufffdb", false},
		"escape as text":     {`\ufffd`, false},
		"escape after slash": {`\\ufffd`, false},
		"invalid byte":       {"a\xffb", true},
		"cut rune":           {"a\xe2\x82", true},
		"surrogate":          {"\xed\xa0\x80", true},
		"real and invalid":   {"\ufffd\xff", true},
		"slash and invalid":  {"\\\xff", true},
		"in struct":          {record{Text: "\xff"}, true},
		"in map value":       {record{Map: map[string]string{"a": "\xff"}}, true},
		"in map key":         {record{Map: map[string]string{"\xff": "a"}}, true},
		"real in struct":     {record{Text: "\ufffd", Map: map[string]string{"\ufffd": "\ufffd"}}, false},
	} {
		data, err := json.Marshal(c.value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := jsonvalue.HasEscapedReplacement(data); got != c.want {
			t.Errorf("%s: HasEscapedReplacement(%s) = %v, want %v", name, data, got, c.want)
		}
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(c.value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := jsonvalue.HasEscapedReplacement(b.Bytes()); got != c.want {
			t.Errorf("%s: HasEscapedReplacement(%s) = %v, want %v", name, strings.TrimSpace(b.String()), got, c.want)
		}
	}
}
