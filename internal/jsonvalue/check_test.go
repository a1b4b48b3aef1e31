package jsonvalue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

// refused is a text with the reason and the offset it is refused for.
type refused struct {
	text   string
	reason jsonvalue.Reason
	offset int
}

func wantAccepted(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := jsonvalue.Check([]byte(text), jsonvalue.DefaultLimits()); err != nil {
			t.Errorf("Check(%.60q) = %v, want nil", text, err)
		}
	}
}

func wantRefused(t *testing.T, cases ...refused) {
	t.Helper()
	for _, c := range cases {
		wantError(t, c, jsonvalue.Check([]byte(c.text), jsonvalue.DefaultLimits()))
	}
}

func wantError(t *testing.T, c refused, err error) {
	t.Helper()
	var e *jsonvalue.Error
	if !errors.As(err, &e) {
		t.Errorf("%.60q: error %v, want %v at %d", c.text, err, c.reason, c.offset)
		return
	}
	if e.Reason != c.reason || e.Offset != c.offset {
		t.Errorf("%.60q: %v, want %v at %d", c.text, e, c.reason, c.offset)
	}
}

func TestCheckAcceptsValues(t *testing.T) {
	t.Parallel()
	wantAccepted(t,
		`null`, `true`, `false`, `0`, `""`, `[]`, `{}`, `"text"`,
		" \t\r\n{ \"a\" : [ 1 , { } , [ ] ] } \n", `[[],{},[{}]]`,
		`{"a":1,"b":{"a":1}}`, `{"":0}`, `[{"a":1},{"a":1}]`,
	)
}

func TestCheckRefusesSyntax(t *testing.T) {
	t.Parallel()
	const syntax = jsonvalue.Syntax
	wantRefused(t,
		refused{`nul`, syntax, 0}, refused{`True`, syntax, 0}, refused{`nullnull`, syntax, 4},
		refused{`{} {}`, syntax, 3}, refused{`1 2`, syntax, 2}, refused{`,`, syntax, 0},
		refused{`]`, syntax, 0}, refused{`[1,]`, syntax, 3}, refused{`[,1]`, syntax, 1},
		refused{`[1 2]`, syntax, 3}, refused{`[1}`, syntax, 2}, refused{`{]`, syntax, 1},
		refused{`[`, syntax, 1}, refused{`[1`, syntax, 2}, refused{`[1,`, syntax, 3},
		refused{`{`, syntax, 1}, refused{`{"a"`, syntax, 4}, refused{`{"a":`, syntax, 5},
		refused{`{"a" 1}`, syntax, 5}, refused{`{"a":}`, syntax, 5}, refused{`{"a":1,}`, syntax, 7},
		refused{`{1:2}`, syntax, 1}, refused{`{"a":1]`, syntax, 6}, refused{`{"a"::1}`, syntax, 5},
		refused{`[1:2]`, syntax, 2}, refused{`'a'`, syntax, 0}, refused{`[1]//`, syntax, 3},
		refused{"\ufeff1", syntax, 0}, refused{"\v1", syntax, 0}, refused{"1\x00", syntax, 1},
		refused{"[\xff]", syntax, 1}, refused{`NaN`, syntax, 0}, refused{`-Infinity`, syntax, 1},
	)
}

func TestCheckRefusesEmpty(t *testing.T) {
	t.Parallel()
	wantRefused(t, refused{"", jsonvalue.Empty, 0}, refused{" \n", jsonvalue.Empty, 2})
	wantError(t, refused{"nil", jsonvalue.Empty, 0}, jsonvalue.CheckObject(nil, jsonvalue.Limits{}))
}

func nested(depth int) string {
	return strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth)
}

func TestCheckDepth(t *testing.T) {
	t.Parallel()
	wantAccepted(t, nested(90), strings.Repeat(`{"a":`, 90)+`1`+strings.Repeat(`}`, 90))
	wantAccepted(t, `[`+nested(89)+`,`+nested(89)+`]`)
	wantRefused(t,
		refused{nested(91), jsonvalue.TooDeep, 90},
		refused{strings.Repeat(`{"a":`, 91), jsonvalue.TooDeep, 450},
		refused{strings.Repeat(`[`, 10_000_000), jsonvalue.TooDeep, 90},
	)
	one := jsonvalue.Limits{MaxDepth: 1}
	if err := jsonvalue.Check([]byte(`[1,"a"]`), one); err != nil {
		t.Error(err)
	}
	wantError(t, refused{`[{}]`, jsonvalue.TooDeep, 1}, jsonvalue.Check([]byte(`[{}]`), one))
	// The limit is the caller's; a large one must not cost goroutine stack.
	deep := jsonvalue.Limits{MaxDepth: 200_000}
	if err := jsonvalue.Check([]byte(nested(200_000)), deep); err != nil {
		t.Error(err)
	}
}

func TestCheckSize(t *testing.T) {
	t.Parallel()
	l := jsonvalue.Limits{MaxBytes: 4}
	if err := jsonvalue.Check([]byte(`1234`), l); err != nil {
		t.Error(err)
	}
	wantError(t, refused{`1234 `, jsonvalue.TooLarge, 4}, jsonvalue.Check([]byte(`1234 `), l))
}

func TestCheckObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, ` {"a":[1]} `} {
		if err := jsonvalue.CheckObject([]byte(text), jsonvalue.Limits{}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, c := range []refused{
		{`[]`, jsonvalue.NotObject, 0},
		{` null`, jsonvalue.NotObject, 1},
		{`"a"`, jsonvalue.NotObject, 0},
		{`1e9999`, jsonvalue.NotObject, 0},
		{`x`, jsonvalue.Syntax, 0},
		{`{}{}`, jsonvalue.Syntax, 2},
	} {
		wantError(t, c, jsonvalue.CheckObject([]byte(c.text), jsonvalue.Limits{}))
	}
}

func TestZeroLimitsAreDefaultLimits(t *testing.T) {
	t.Parallel()
	want := jsonvalue.Limits{MaxDepth: 90, MaxDigits: 34, MaxExponent: 6000}
	if got := jsonvalue.DefaultLimits(); got != want {
		t.Errorf("DefaultLimits() = %+v, want %+v", got, want)
	}
	for _, l := range []jsonvalue.Limits{{}, {MaxBytes: -1, MaxDepth: -1, MaxDigits: -1, MaxExponent: -1}} {
		wantError(t, refused{"depth", jsonvalue.TooDeep, 90}, jsonvalue.Check([]byte(nested(91)), l))
		if err := jsonvalue.Check([]byte(nested(90)), l); err != nil {
			t.Error(err)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	err := jsonvalue.Check([]byte(`{"secret":1,"secret":2}`), jsonvalue.DefaultLimits())
	if got, want := err.Error(), "jsonvalue: duplicate member name at offset 12"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	seen := map[string]bool{}
	for r := jsonvalue.Syntax; r <= jsonvalue.ExponentRange; r++ {
		text := r.String()
		if text != strings.ToLower(text) || text == jsonvalue.Reason(0).String() || seen[text] {
			t.Errorf("Reason(%d).String() = %q", r, text)
		}
		seen[text] = true
	}
}

func TestCheckDoesNotAllocate(t *testing.T) { //nolint:paralleltest // it counts allocations
	var b strings.Builder
	for i := range 16 {
		fmt.Fprintf(&b, `,"name%d":[%d,"välue",{"a":null}]`, i, i)
	}
	data := []byte(`{` + b.String()[1:] + `}`)
	if n := testing.AllocsPerRun(100, func() { _ = jsonvalue.CheckObject(data, jsonvalue.Limits{}) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	var s strings.Builder
	for i := range 12 {
		fmt.Fprintf(&s, `,"field_%d":{"id":%d,"price":%d.25,"title":"the quick brown fox","tags":["a","b"]}`, i, i, i)
	}
	data := []byte(`{` + s.String()[1:] + `}`)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := jsonvalue.Check(data, jsonvalue.DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}
