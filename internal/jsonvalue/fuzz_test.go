package jsonvalue_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"testing"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

// seeds are texts that fuzzing begins with.
func seeds() []string {
	return []string{
		``, ` `, `null`, `-0.0e-0`, `1e6000`, `0e6001`, `1.50e+2`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\xff\"", `"\ufffd"`, `"\\ufffd"`,
		`{"a":1,"\u0061":2}`, `{"\u0000":"\u0000"}`, `[[],{},[{"a":[1,2e5,"x"]}]]`, "{ \"a\" : [ 1 , true ] ,\n\"b\":\"\" }",
		`[1,]`, `{"a":}`, `10000000000000000000000000000000000000001`, nested(91),
		`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"\u0069":1}`,
	}
}

func FuzzCheck(f *testing.F) {
	for _, seed := range seeds() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		jsonvalue.HasEscapedReplacement(data)
		compact := jsonvalue.Compact(nil, data)
		names := 0
		for range jsonvalue.Members(data) {
			names++
		}
		err := jsonvalue.Check(data, jsonvalue.DefaultLimits())
		if err != nil {
			wantReasoned(t, data, err)
			return
		}
		if !json.Valid(data) {
			t.Fatal("accepted, but not valid")
		}
		var want bytes.Buffer
		if err := json.Compact(&want, data); err != nil || !bytes.Equal(compact, want.Bytes()) {
			t.Errorf("Compact = %s, want %s (%v)", compact, want.Bytes(), err)
		}
		if !jsonvalue.Equal(data, compact) {
			t.Error("not equal after Compact")
		}
		if jsonvalue.CheckObject(data, jsonvalue.DefaultLimits()) == nil {
			var object map[string]json.RawMessage
			if err := json.Unmarshal(data, &object); err != nil || len(object) != names {
				t.Errorf("%d members, want %d (%v)", names, len(object), err)
			}
		}
	})
}

// wantReasoned fails when a text that encoding/json takes for valid is refused
// for its form, or the offset is outside of the text.
func wantReasoned(t *testing.T, data []byte, err error) {
	t.Helper()
	var e *jsonvalue.Error
	if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(data) {
		t.Fatalf("error %v", err)
	}
	if e.Reason == jsonvalue.Syntax || e.Reason == jsonvalue.Empty || e.Reason == jsonvalue.ControlChar {
		if json.Valid(data) {
			t.Errorf("valid, but refused: %v", err)
		}
	}
}

func FuzzEqual(f *testing.F) {
	for i, seed := range seeds() {
		f.Add([]byte(seed), []byte(seeds()[len(seeds())-1-i]))
	}
	f.Add([]byte(`[1e2,"a",-0]`), []byte(`[100.0,"\u0061",0]`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		got := jsonvalue.Equal(a, b)
		if got != jsonvalue.Equal(b, a) {
			t.Error("not symmetric")
		}
		for _, text := range [][]byte{a, b} {
			if jsonvalue.Check(text, jsonvalue.DefaultLimits()) != nil {
				return
			}
			if !jsonvalue.Equal(text, append([]byte(" "), text...)) {
				t.Errorf("not reflexive: %q", text)
			}
		}
		if want := equalTokens(t, a, b); got != want {
			t.Errorf("Equal(%q, %q) = %v, want %v", a, b, got, want)
		}
	})
}

// equalTokens is Equal by way of encoding/json and math/big.
func equalTokens(t *testing.T, a, b []byte) bool {
	t.Helper()
	da, db := json.NewDecoder(bytes.NewReader(a)), json.NewDecoder(bytes.NewReader(b))
	da.UseNumber()
	db.UseNumber()
	for {
		ta, errA := da.Token()
		tb, errB := db.Token()
		if errA != nil || errB != nil {
			return errA == io.EOF && errB == io.EOF
		}
		na, isNumber := ta.(json.Number)
		nb, both := tb.(json.Number)
		if !isNumber || !both {
			if ta != tb {
				return false
			}
			continue
		}
		ra, okA := new(big.Rat).SetString(na.String())
		rb, okB := new(big.Rat).SetString(nb.String())
		if !okA || !okB {
			t.Fatalf("%s or %s is no number to math/big", na, nb)
		}
		if ra.Cmp(rb) != 0 {
			return false
		}
	}
}
