package jsonvalue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

func TestCheckNames(t *testing.T) {
	t.Parallel()
	wantAccepted(t,
		`{"a":1,"A":2}`, `{"é":1,"e\u0301":2}`, `{"a":{"a":{"a":1}},"b":{"a":1}}`, `{"a":1,"\\u0061":2}`,
		`{"\u0061":{"\u0061":1},"b":2}`, `{"\u0061":{"\u0062":1},"\u0062":2}`, `{"":1," ":2}`,
	)
	const duplicate = jsonvalue.DuplicateName
	wantRefused(t,
		refused{`{"a":1,"a":2}`, duplicate, 7}, refused{`{"":1,"":2}`, duplicate, 6},
		refused{`{"a":1,"\u0061":2}`, duplicate, 7}, refused{`{"\u0061":1,"a":2}`, duplicate, 12},
		refused{`{"/":1,"\/":2}`, duplicate, 7}, refused{`{"😀":1,"\ud83d\ude00":2}`, duplicate, 10},
		refused{`{"a":{"b":1},"a":2}`, duplicate, 13}, refused{`[{"x":[{"a":1,"b":2,"a":3}]}]`, duplicate, 20},
		refused{`{"\u0061":{"\u0061":1},"a":2}`, duplicate, 23},
		refused{`{"a\u0000":1}`, jsonvalue.NULInName, 1}, refused{`[{"b":1,"\u0000":2}]`, jsonvalue.NULInName, 8},
	)
}

// object returns an object of n members, the name of each made by format.
func object(format string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteByte(',')
		fmt.Fprintf(&b, format, i)
		b.WriteString(`:{"x":0}`)
	}
	return `{` + b.String()[1:] + `}`
}

func TestCheckNamesOfLargeObjects(t *testing.T) {
	t.Parallel()
	for _, n := range []int{15, 16, 17, 18, 31, 32, 33, 34, 1000} {
		for _, format := range []string{`"n%d"`, `"\u006e%d"`} {
			text := object(format, n)
			wantAccepted(t, text, `[`+text+`,`+text+`]`)
			for _, again := range []int{0, n / 2, n - 1} {
				added := fmt.Sprintf(`,"n%d":0}`, again)
				wantRefused(t, refused{text[:len(text)-1] + added, jsonvalue.DuplicateName, len(text)})
			}
		}
	}
}

func TestCheckNamesOfLargeObjectsInLargeObjects(t *testing.T) {
	t.Parallel()
	inner := object(`"n%d"`, 50)
	text := strings.ReplaceAll(object(`"m\u0020%d"`, 50), `{"x":0}`, inner)
	wantAccepted(t, text)
	wantRefused(t, refused{text[:len(text)-1] + `,"m 49":0}`, jsonvalue.DuplicateName, len(text)})
	wantRefused(t, refused{text[:len(text)-2] + `,"n0":0}}`, jsonvalue.DuplicateName, len(text) - 1})
}

func TestCheckNamesOfVeryLargeObject(t *testing.T) {
	t.Parallel()
	text := object(`"n%d"`, 100_000)
	wantAccepted(t, text)
	wantRefused(t, refused{text[:len(text)-1] + `,"n7":0}`, jsonvalue.DuplicateName, len(text)})
}
