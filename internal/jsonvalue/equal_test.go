package jsonvalue_test

import (
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

func TestEqual(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 5000)
	for _, c := range [][2]string{
		{`null`, ` null `},
		{`[]`, "[\n]"},
		{`{"a":[1,2]}`, `{ "a" : [ 1 , 2 ] }`},
		{`1e2`, `100`},
		{`100`, `100.0`},
		{`1E+2`, `1000e-1`},
		{`0.1`, `1e-1`},
		{`0.00120`, `12e-4`},
		{`-1.50`, `-15e-1`},
		{`0`, `-0`},
		{`0`, `0.000`},
		{`0`, `-0e5`},
		{`10.01`, `1001e-2`},
		{`10.01`, `1.001e1`},
		{`1e5000`, `1` + zeros},
		{`1e-5000`, `0.` + zeros[1:] + `1`},
		{`1e6000`, `0.1e6001`},
		{`1e05`, `1e5`},
		{`1e99999999999999`, `1e99999999999999`},
		{`0e99999999999999`, `0`},
		{`"a"`, `"\u0061"`},
		{`"/"`, `"\/"`},
		{`"\n"`, `"\u000A"`},
		{`"😀"`, `"\ud83d\ude00"`},
		{`"é\u00e9"`, `"\u00E9é"`},
		{`{"a":1}`, `{"\u0061":1.0}`},
		{`"\ufffd"`, "\"\ufffd\""},
		{`""`, `""`},
	} {
		wantEqual(t, c[0], c[1], true)
	}
	for _, c := range [][2]string{
		{`null`, `false`},
		{`1`, `"1"`},
		{`[]`, `{}`},
		{`[1,2]`, `[2,1]`},
		{`[1,2]`, `[12]`},
		{`[1]`, `[1,1]`},
		{`[[]]`, `[]`},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`},
		{`{"a":1}`, `{"a":2}`},
		{`{"a":1}`, `{"b":1}`},
		{`1`, `-1`},
		{`1`, `10`},
		{`1`, `0`},
		{`0`, `1`},
		{`1.01`, `1.1`},
		{`1e6000`, `1e-6000`},
		{`1`, `1.0000000000000000000000000000000001`},
		{`9007199254740993`, `9007199254740992`},
		{`0.1`, `0.1000000000000000055511151231257827`},
		{`101`, `1.1e2`},
		{`12`, `123`},
		{`1e99999999999999`, `1e99999999999998`},
		{`1e99999999999999`, `1`},
		{`1e99999999999999`, `-1e99999999999999`},
		{`"a"`, `"A"`},
		{`"a"`, `"a "`},
		{`"\\u0061"`, `"a"`},
		{`"\\n"`, `"\n"`},
		{`"é"`, `"e\u0301"`},
		{`"\u0061b"`, `"a"`},
		{`""`, `"\u0000"`},
	} {
		wantEqual(t, c[0], c[1], false)
	}
}

func wantEqual(t *testing.T, a, b string, want bool) {
	t.Helper()
	if got := jsonvalue.Equal([]byte(a), []byte(b)); got != want {
		t.Errorf("Equal(%.40s, %.40s) = %v, want %v", a, b, got, want)
	}
	if got := jsonvalue.Equal([]byte(b), []byte(a)); got != want {
		t.Errorf("Equal(%.40s, %.40s) = %v, want %v", b, a, got, want)
	}
}

func TestEqualDoesNotAllocate(t *testing.T) { //nolint:paralleltest // it counts allocations
	a, b := []byte(`{"a":[1e6000,"\u0061",-0]}`), []byte(`{"\u0061":[10e5999,"a",0.0]}`)
	if n := testing.AllocsPerRun(100, func() {
		if !jsonvalue.Equal(a, b) {
			t.Error("not equal")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestCompact(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		" null\n":                           `null`,
		"{ \"a b\" :\t[ 1.0 , 2e+05 ]\r\n}": `{"a b":[1.0,2e+05]}`,
		`" \" , \\"  `:                      `" \" , \\"`,
		`[ "<&>\u003c\/", "é\ufffd" ]`:      `["<&>\u003c\/","é\ufffd"]`,
		"[\"\u2028\" ]":                     "[\"\u2028\"]",
		`[ ]`:                               `[]`,
		`[1]`:                               `[1]`,
	} {
		if got := string(jsonvalue.Compact([]byte("x:"), []byte(src))); got != "x:"+want {
			t.Errorf("Compact(%s) = %s, want x:%s", src, got, want)
		}
		inPlace := []byte(src)
		if got := string(jsonvalue.Compact(inPlace[:0], inPlace)); got != want {
			t.Errorf("Compact(%s) in place = %s, want %s", src, got, want)
		}
	}
}
