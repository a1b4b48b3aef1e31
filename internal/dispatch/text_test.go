package dispatch_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/relaybus-go/relaybus/internal/dispatch"
)

type panics struct{}

func (panics) Error() string { panic("no text") }

func TestText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 4096)
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"x\x00\xff", "x\uFFFD\uFFFD"},
		{"\xed\xa0\x80", "\uFFFD"},
		{long, long},
		{long + "x", long[:4096-len("… (cut)")] + "… (cut)"},
	} {
		if got := dispatch.Text(errors.New(c.in)); got != c.want {
			t.Errorf("%.20q became %.40q", c.in, got)
		}
	}
	if got := dispatch.Text(panics{}); got != "an error whose Error method panics" {
		t.Errorf("became %q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("x\x00\xff")
	f.Add(strings.Repeat("é", 2045) + "x\u20ac")
	f.Fuzz(func(t *testing.T, in string) {
		got := dispatch.Text(errors.New(in))
		if len(got) > 4096 || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%q became %q", in, got)
		}
		if again := dispatch.Text(errors.New(got)); again != got {
			t.Errorf("%q became %q", got, again)
		}
	})
}

func TestStopErrorText(t *testing.T) {
	t.Parallel()
	cause := errors.New("gone")
	for _, c := range []struct {
		err  dispatch.StopError
		want string
	}{
		{dispatch.StopError{Running: []string{"a", "a", "b"}}, "stop dispatcher: still running: a, a, b"},
		{dispatch.StopError{Unsettled: 3, Err: cause}, "stop dispatcher: 3 deliveries not given back: gone"},
		{dispatch.StopError{Err: cause}, "stop dispatcher: gone"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("text is %q, want %q", got, c.want)
		}
		if c.err.Err != nil && !errors.Is(&c.err, cause) {
			t.Error("the cause can't be reached")
		}
	}
}
