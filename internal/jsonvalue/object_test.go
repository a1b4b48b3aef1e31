package jsonvalue_test

import (
	"slices"
	"testing"

	"github.com/relaybus-go/relaybus/internal/jsonvalue"
)

func members(text string) []string {
	var got []string
	for name, value := range jsonvalue.Members([]byte(text)) {
		got = append(got, name+"="+string(value))
	}
	return got
}

func TestMembers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{}`:      nil,
		`{"a":1}`: {"a=1"},
		//nolint:gocritic // the white space is what is tested
		` { "b" : [ 1 , {"x":{}} ] , "a" : "y,}" , "\u0061\n" : null , "":{ "a":1 } } `: {
			"b=[ 1 , {\"x\":{}} ]", `a="y,}"`, "a\n=null", `={ "a":1 }`,
		},
		`["a"]`: nil, `null`: nil, ``: nil, `{"a":1,"b":]`: {"a=1"}, `{"a":1,"b":[`: {"a=1"}, `{"a"}`: nil, `{"a":`: nil,
	} {
		if got := members(text); !slices.Equal(got, want) {
			t.Errorf("Members(%s) = %q, want %q", text, got, want)
		}
	}
}

func TestMembersStopsWhenTold(t *testing.T) {
	t.Parallel()
	count := 0
	for range jsonvalue.Members([]byte(`{"a":1,"b":2,"c":3}`)) {
		if count++; count == 2 {
			break
		}
	}
	if count != 2 {
		t.Errorf("%d members, want 2", count)
	}
}

func TestMembersValuesDoNotOverlap(t *testing.T) {
	t.Parallel()
	data := []byte(`{"a":1,"b":2}`)
	for _, value := range jsonvalue.Members(data) {
		_ = append(value, "xx"...)
	}
	if got, want := string(data), `{"a":1,"b":2}`; got != want {
		t.Errorf("data is %s after append, want %s", got, want)
	}
}
