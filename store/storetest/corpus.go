package storetest

import (
	"strings"
)

// Sample is one entry of the golden corpus: a value that systems like this one
// have damaged.
type Sample struct {
	// Name is unique in its list and can be a part of an event id.
	Name string
	// JSON is one valid JSON value, as small or as odd as a publisher may send it.
	JSON string
}

// Payloads returns payloads that must come back as they went in: the same
// bytes, or equal by value where the store declares PayloadByValue. All of them
// are valid for a bus: at most 34 significant digits, 90 levels, no duplicate
// member names.
func Payloads() []Sample {
	return []Sample{
		{"null", `null`},
		{"true", `true`},
		{"false", `false`},
		{"empty-string", `""`},
		{"empty-object", `{}`},
		{"empty-array", `[]`},
		{"zero", `0`},
		{"empty-null-absent", `{"empty":"","null":null,"object":{},"array":[],"zero":0,"false":false}`},
		{"numbers", `{"a":9007199254740993,"b":-9223372036854775808,"c":18446744073709551615,` +
			`"d":0.1234567890123456789,"e":1.0,"f":1e2,"g":-0,"h":123456789012345678901234567890}`},
		{"integers", `[1546130668394913822,9223372036854775807,9223372036854775808,-9223372036854775809,` +
			`9007199254740991,9007199254740992,-9007199254740993,4294967296,2147483648,-2147483649]`},
		{"decimals", `[0.1,0.2,0.30000000000000004,1.10,100.00,1234567890.123456789012345678901234,` +
			`0.000000000000000000000000000000001,9999999999999999999999999999999999]`},
		{"exponents", `[1e0,1E+2,1e-2,-1.5e10,5e-324,1.7976931348623157e308,1e309,1e-400,1e6000,1e-6000,-0.0,-0e0,0e5]`},
		{"bare-number", `123456789012345678901234567890.1234`},
		{"nul", `{"nul":"a\u0000b","only":"\u0000","end":"x\u0000"}`},
		{"escaped-backslash-nul", `{"text":"a\\u0000b","more":"\\\\u0000"}`},
		{"escapes", `"\"\\\/\b\f\n\r\t\u001f\u007f\u0080\u2028\u2029"`},
		{"escaped-unicode", `"\u00e9\u4e2d\ud83d\ude00\uFFFD\ufeff\uffff\ufdd0"`},
		{"raw-unicode", `"é中😀` + "\ufffd\ufeff\uffff\u2028\u2029\u202e\u200d" + `"`},
		{"not-normalized", `["é","e` + "\u0301" + `","ﬁ","K"]`},
		{"long-emoji", `"` + strings.Repeat("👨‍👩‍👧‍👦", 500) + `"`},
		{"control-names", `{"":1," ":2,"a b":3,"\t":4,"$ref":5,"a.b":6,"$set":{"x":1},"_id":7,"__proto__":8,"constructor":9}`},
		{"member-order", `{"z":1,"a":2,"m":{"z":1,"a":2},"10":3,"9":4,"B":5,"b":6}`},
		{"similar-names", `{"a":1,"A":2,"á":3,"a` + "\u0301" + `":4,"a ":5}`},
		{"white-space", " \n\t{ \"a\" : [ 1 , 2 ]\r\n, \"b\" : \"c\" } \n"},
		{"dates", `{"date":"2026-02-30T25:61:61Z","iso":"2026-01-01T00:00:00.000000001Z","$date":"x","$oid":"y"}`},
		{"extended-json", `{"$numberLong":"1","$numberDecimal":"1.10","$binary":{"base64":"","subType":"00"},"$undefined":true}`},
		{"deep-arrays", strings.Repeat("[", 90) + strings.Repeat("]", 90)},
		{"deep-objects", strings.Repeat(`{"a":`, 89) + `{}` + strings.Repeat("}", 89)},
		{"wide", `[` + strings.TrimSuffix(strings.Repeat(`{"k":0,"v":"x"},`, 2000), ",") + `]`},
		{"big", `"` + strings.Repeat("0123456789abcdef", 1<<14) + `"`},
		{"big-escaped", `"` + strings.Repeat(`\u0000\"\\😀`, 1<<12) + `"`},
		{"html", `"<img src=x onerror=alert(1)></script><script>&amp;"`},
		{"formula", `["=cmd()","+1","-1","@x","\t=1"]`},
		{"sql", `"'; DROP TABLE deliveries; --"`},
		{"format", `"%s %d %n ${jndi:ldap://x} {{7*7}} $(id) #{1}"`},
	}
}

// HeaderSets returns headers that must come back as they went in. "" stands for
// an event without headers, which is not the same as "{}".
func HeaderSets() []Sample {
	return []Sample{
		{"absent", ``},
		{"empty", `{}`},
		{"strings", `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","":"","null":null}`},
		{"numbers", `{"a":9007199254740993,"c":18446744073709551615,"d":0.1234567890123456789,"e":1.0,"g":-0}`},
		{"nul", `{"nul":"a\u0000b"}`},
		{"nested", `{"b":{"z":[1,2,{"a":null}]},"a":[]}`},
		{"order", `{"z":"1","a":"2","M":"3","m":"4"}`},
		{"many", `{` + strings.TrimSuffix(manyMembers(500), ",") + `}`},
	}
}

func manyMembers(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(`"` + numberedName("header", i) + `":"` + strings.Repeat("v", 20) + `",`)
	}
	return text.String()
}

// HostileStrings returns strings that have become SQL, operators, patterns,
// paths, markup or other keys in systems like this one. All are valid UTF-8
// without control characters and at most 255 bytes long, so each of them can be
// an id, a type, a key, a handler id or a filter.
func HostileStrings() []string {
	return []string{
		`'`, `"`, "`", `\`, `''`, `' OR '1'='1`, `'; DROP TABLE relaybus_deliveries; --`, `") OR 1=1 --`,
		`%`, `_`, `*`, `?`, `.*`, `a%`, `order.%`, `order.*`, `[a-z]`, `(`, `)`, `{`, `}`, `$`, `$1`, `?1`, `:a`, `@a`,
		`{"$ne":null}`, `{"$gt":""}`, `$where`, `a.b`, `a$b`, `null`, `NULL`, `true`, `0`, `-1`, `1e9`, `undefined`, `NaN`,
		`<img src=x onerror=alert(1)>`, `</script>`, `javascript:alert(1)`, `=cmd()`, `&amp;`, `&#0;`,
		`../../etc/passwd`, `%00`, `%2e%2e`, `\x00`, `\u0000`, `a/b`, `a:b`, `1:1:0`, `a b`, ` a`, `a `, `A`, `a`,
		`é`, "e\u0301", `ﬁ`, `İ`, `ß`, `中文`, `😀`, "\u202e", "\ufeff", "\u200b", "\ufffd",
		strings.Repeat("x", 255), strings.Repeat("é", 127), strings.Repeat("😀", 63), strings.Repeat("'", 255),
	}
}
