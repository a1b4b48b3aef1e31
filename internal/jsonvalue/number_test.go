package jsonvalue_test

import (
	"math"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

func TestCheckNumberSyntax(t *testing.T) {
	t.Parallel()
	wantAccepted(t, `0`, `-0`, `0.0`, `-0.0e-0`, `1`, `-1`, `10`, `1.5`, `1e2`, `1E+2`, `1e-2`, `1e007`, `0e0`)
	const syntax = jsonvalue.Syntax
	wantRefused(t,
		refused{`-`, syntax, 1}, refused{`+1`, syntax, 0}, refused{`01`, syntax, 1},
		refused{`-01`, syntax, 2}, refused{`1.`, syntax, 2}, refused{`.1`, syntax, 0},
		refused{`1.e2`, syntax, 2}, refused{`1e`, syntax, 2}, refused{`1e+`, syntax, 3},
		refused{`1e1.5`, syntax, 3}, refused{`--1`, syntax, 1}, refused{`0x1`, syntax, 1},
		refused{`1_0`, syntax, 1}, refused{`1.2.3`, syntax, 3},
	)
}

func TestCheckDigits(t *testing.T) {
	t.Parallel()
	nines := strings.Repeat("9", 34)
	wantAccepted(t,
		nines, `-`+nines, `0.`+nines, `0.000`+nines, nines+`000`, nines+`.000`,
		nines[:20]+`.`+nines[20:], nines[:20]+`.`+nines[20:]+`000`, nines+`e100`,
		`1`+strings.Repeat("0", 38), `0.`+strings.Repeat("0", 100)+`1`, `1.`+strings.Repeat("0", 100),
		strings.Repeat("1", 3)+strings.Repeat("0", 28)+`1.01`,
	)
	const digits = jsonvalue.TooManyDigits
	wantRefused(t,
		refused{nines + `9`, digits, 0}, refused{` -9` + nines, digits, 1},
		refused{`0.9` + nines, digits, 0}, refused{nines + `.9`, digits, 0},
		refused{`1` + strings.Repeat("0", 33) + `1`, digits, 0},
		refused{`1.` + strings.Repeat("0", 33) + `1`, digits, 0},
		refused{`[1,` + nines + `.90]`, digits, 3},
	)
}

func TestCheckExponent(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 6000)
	nines := strings.Repeat("9", 34)
	wantAccepted(t,
		`1e6000`, `9.99e6000`, `-1e-6000`, `12.5e5999`, `0.1e6001`, `0.01e-5998`, `1e0000006000`,
		`1`+zeros, `1`+zeros+`.0`, `0.`+zeros[1:]+`1`, `10`+zeros+`e-1`, `0.`+zeros+`1e100`,
		`0e6000`, `0e-6000`, `0.0e6000`, `0.`+zeros, `9.`+nines[1:]+`e-6000`, `1.`+zeros,
	)
	const exponent = jsonvalue.ExponentRange
	wantRefused(t,
		refused{`1e6001`, exponent, 0}, refused{`1e-6001`, exponent, 0}, refused{`10e6000`, exponent, 0},
		refused{`0.1e-6000`, exponent, 0}, refused{`10` + zeros, exponent, 0},
		refused{`0.` + zeros + `1`, exponent, 0}, refused{`[1,-1e6001]`, exponent, 3},
		refused{`1e99999999999999999999999`, exponent, 0}, refused{`1e-99999999999999999999999`, exponent, 0},
		refused{`1e9223372036854775808`, exponent, 0}, refused{`0e6001`, exponent, 0},
		refused{`0e-6001`, exponent, 0}, refused{`-0e99999999999999999999999`, exponent, 0},
		// Places that are written but not significant.
		refused{`1.` + zeros + strings.Repeat("0", 35), exponent, 0},
		refused{`0.` + zeros + strings.Repeat("0", 35), exponent, 0},
		refused{`1.` + strings.Repeat("0", 35) + `e-6000`, exponent, 0},
	)
	wantAccepted(t, `1.`+zeros+strings.Repeat("0", 34), `1.`+strings.Repeat("0", 34)+`e-6000`)
}

func TestCheckNumberLimits(t *testing.T) {
	t.Parallel()
	l := jsonvalue.Limits{MaxDigits: 2, MaxExponent: 3}
	for _, text := range []string{`0.25`, `9900`, `1e-3`, `0.00990`} {
		if err := jsonvalue.Check([]byte(text), l); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, c := range []refused{
		{`1.25`, jsonvalue.TooManyDigits, 0},
		{`10000`, jsonvalue.ExponentRange, 0},
		{`0.0001`, jsonvalue.ExponentRange, 0},
		{`1.000000`, jsonvalue.ExponentRange, 0},
	} {
		wantError(t, c, jsonvalue.Check([]byte(c.text), l))
	}
	l = jsonvalue.Limits{MaxDigits: math.MaxInt, MaxExponent: math.MaxInt}
	for _, text := range []string{`1e999999999999`, `1.00e-999999999999`, `0e12`, strings.Repeat("7", 5000)} {
		if err := jsonvalue.Check([]byte(text), l); err != nil {
			t.Errorf("%.20s: %v", text, err)
		}
	}
	l.MaxDigits = 1
	if err := jsonvalue.Check([]byte(`1e12`), l); err != nil {
		t.Error(err)
	}
	huge := refused{`1e1000000000000`, jsonvalue.ExponentRange, 0}
	wantError(t, huge, jsonvalue.Check([]byte(huge.text), l))
}
