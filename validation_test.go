package relaybus_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
)

type badJSON struct{ text string }

func (b badJSON) MarshalJSON() ([]byte, error) { return []byte(b.text), nil }

type failingJSON struct{}

func (failingJSON) MarshalJSON() ([]byte, error) { return nil, errors.New("secret payload") }

type panickingJSON struct{}

func (panickingJSON) MarshalJSON() ([]byte, error) { panic("secret payload") }

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// B8, F08: what can't be kept the same everywhere is refused before any
// statement, and the caller's transaction stays usable.
func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	payload := func(text string) relaybus.Message { return relaybus.Raw("t", json.RawMessage(text)) }
	value := func(v any) relaybus.Message { return relaybus.Define[any]("t").New(v) }
	with := func(options ...relaybus.PublishOption) relaybus.Message {
		return relaybus.Raw("t", json.RawMessage(`{}`), options...)
	}
	long := strings.Repeat("x", 256)
	cases := map[string]struct {
		field string
		m     relaybus.Message
	}{
		"empty payload":                 {"payload", payload("")},
		"nil payload":                   {"payload", relaybus.Raw("t", nil)},
		"blank payload":                 {"payload", payload(" ")},
		"broken JSON":                   {"payload", payload("{")},
		"two values":                    {"payload", payload("1 2")},
		"invalid UTF-8":                 {"payload", payload("\"\xe2\x5c\x78\"")},
		"raw NUL":                       {"payload", payload("\"\x00\"")},
		"lone surrogate":                {"payload", payload(`"\ud800"`)},
		"lone low surrogate":            {"payload", payload(`"\udc00x"`)},
		"NUL in a member name":          {"payload", payload(`{"a\u0000b":1}`)},
		"duplicate names":               {"payload", payload(`{"a":1,"b":2,"a":3}`)},
		"duplicate names, one escaped":  {"payload", payload(`{"a":1,"\u0061":3}`)},
		"duplicate names, nested":       {"payload", payload(`[{"x":{"a":1,"a":2}}]`)},
		"NaN":                           {"payload", payload(`NaN`)},
		"infinity":                      {"payload", payload(`-Infinity`)},
		"35 digits":                     {"payload", payload("12345678901234567890123456789012345")},
		"exponent":                      {"payload", payload("1e6001")},
		"huge exponent":                 {"payload", payload("1e99999999999999999999")},
		"depth":                         {"payload", payload(deep(91))},
		"size":                          {"payload", payload(`"` + strings.Repeat("x", 896<<10) + `"`)},
		"Go NaN":                        {"payload", value(math.NaN())},
		"Go infinity":                   {"payload", value(math.Inf(-1))},
		"Go channel":                    {"payload", value(make(chan int))},
		"Go invalid UTF-8":              {"payload", value("a\xffb")},
		"Go invalid UTF-8 in a key":     {"payload", value(map[string]int{"a\xff": 1})},
		"Go NUL in a key":               {"payload", value(map[string]int{"a\x00": 1})},
		"marshaler of duplicates":       {"payload", value(badJSON{`{"a":1,"a":2}`})},
		"marshaler of invalid UTF-8":    {"payload", value(badJSON{"\"\xff\""})},
		"marshaler of lone surrogates":  {"payload", value(badJSON{`"\ud800"`})},
		"marshaler of garbage":          {"payload", value(badJSON{`{`})},
		"marshaler that fails":          {"payload", value(failingJSON{})},
		"marshaler that panics":         {"payload", value(panickingJSON{})},
		"empty type":                    {"type", relaybus.Raw("", json.RawMessage(`1`))},
		"long type":                     {"type", relaybus.Raw(long, json.RawMessage(`1`))},
		"type with a pattern":           {"type", relaybus.Raw("order.*", json.RawMessage(`1`))},
		"type with a space":             {"type", relaybus.Raw("a b", json.RawMessage(`1`))},
		"type with NUL":                 {"type", relaybus.Raw("a\x00b", json.RawMessage(`1`))},
		"type with invalid UTF-8":       {"type", relaybus.Raw("a\xff", json.RawMessage(`1`))},
		"empty id":                      {"id", with(relaybus.ID(""))},
		"long id":                       {"id", with(relaybus.ID(long))},
		"id with a line break":          {"id", with(relaybus.ID("a\nb"))},
		"empty key":                     {"key", with(relaybus.Key(""))},
		"long key":                      {"key", with(relaybus.Key(long))},
		"key with NUL":                  {"key", with(relaybus.Key("\x00"))},
		"key of a lone surrogate":       {"key", with(relaybus.Key("\xed\xa0\x80"))},
		"empty correlation":             {"correlation id", with(relaybus.CorrelationID(""))},
		"long causation":                {"causation id", with(relaybus.CausationID(long))},
		"empty header name":             {"headers", with(relaybus.Header("", 1))},
		"long header name":              {"headers", with(relaybus.Header(long, 1))},
		"header name with NUL":          {"headers", with(relaybus.Header("a\x00", 1))},
		"header twice":                  {"headers", with(relaybus.Header("a", 1), relaybus.Header("a", 2))},
		"header of invalid UTF-8":       {"headers", with(relaybus.Header("a", "\xff"))},
		"header that panics":            {"headers", with(relaybus.Header("a", panickingJSON{}))},
		"header that can't be":          {"headers", with(relaybus.Header("a", make(chan int)))},
		"raw headers no object":         {"headers", with(relaybus.RawHeaders(json.RawMessage(`[1]`)))},
		"raw headers twice":             {"headers", with(relaybus.RawHeaders(json.RawMessage(`{"a":1,"a":2}`)))},
		"raw headers and the same":      {"headers", with(relaybus.RawHeaders(json.RawMessage(`{"a":1}`)), relaybus.Header("a", 2))},
		"raw headers broken, and more":  {"headers", with(relaybus.RawHeaders(json.RawMessage(`{`)), relaybus.Header("a", 2))},
		"raw headers with a long name":  {"headers", with(relaybus.RawHeaders(json.RawMessage(`{"` + long + `":1}`)))},
		"raw headers with control":      {"headers", with(relaybus.RawHeaders(json.RawMessage(`{"a\u0001":1}`)))},
		"raw headers with 35 digits":    {"headers", with(relaybus.RawHeaders(json.RawMessage(`{"a":12345678901234567890123456789012345}`)))},
		"headers over the limit":        {"headers", with(relaybus.Header("a", strings.Repeat("x", 64<<10)))},
		"negative delay":                {"delay", with(relaybus.Delay(-1))},
		"absurd delay":                  {"delay", with(relaybus.Delay(math.MaxInt64))},
		"delay and due time":            {"delay", with(relaybus.Delay(1), relaybus.DueAt(time.Unix(1, 0)))},
		"zero due time":                 {"due time", with(relaybus.DueAt(time.Time{}))},
		"absurd due time":               {"due time", with(relaybus.DueAt(time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC)))},
		"two Go types under one name":   {"type", relaybus.Define[int]("known").New(1)},
		"a type that is not registered": {"type", relaybus.Define[int]("unknown").New(1)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, func(cfg *relaybus.Config) {
				cfg.EventTypes = []relaybus.AnyEventType{relaybus.Define[any]("t"), relaybus.Define[json.RawMessage]("order.v1"), relaybus.Define[string]("known")}
			})
			err := b.Transaction(t.Context(), func(ctx context.Context) error {
				b.store.reset()
				err := b.Publish(ctx, relaybus.Raw("t", json.RawMessage(`1`), relaybus.ID("before")), c.m)
				var invalid *relaybus.EventValidationError
				if !errors.As(err, &invalid) || !errors.Is(err, relaybus.ErrValidation) {
					t.Errorf("Publish returned %v", err)
				} else if invalid.Field != c.field || invalid.Index != 1 {
					t.Errorf("refused field %q of event %d, want %q of 1: %v", invalid.Field, invalid.Index, c.field, err)
				}
				if err != nil && strings.Contains(err.Error(), "secret") {
					t.Errorf("the error holds a piece of the payload: %v", err)
				}
				if n := b.store.count(opAppend); n != 0 {
					t.Errorf("%d appends before the refusal", n)
				}
				// The transaction is as it was.
				return b.Publish(ctx, relaybus.Raw("t", json.RawMessage(`1`), relaybus.ID("after")))
			})
			if err != nil {
				t.Fatalf("the transaction could not go on: %v", err)
			}
			if _, _, err := b.Event(t.Context(), "before"); !errors.Is(err, relaybus.ErrNotFound) {
				t.Errorf("the event before the refused one was written: %v", err)
			}
			if _, _, err := b.Event(t.Context(), "after"); err != nil {
				t.Errorf("the event after it was not: %v", err)
			}
		})
	}
}

// B2: an unknown type can be told from everything else.
func TestUnknownEventType(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *relaybus.Config) {
		c.EventTypes = []relaybus.AnyEventType{orderPlaced()}
	})
	if err := b.tryPublish(relaybus.Raw("order.lost", json.RawMessage(`1`))); !errors.Is(err, relaybus.ErrUnknownEventType) || !errors.Is(err, relaybus.ErrValidation) {
		t.Errorf("publish: %v", err)
	}
	err := b.Subscribe(relaybus.Handle("h", []string{"order.*"}, ignore), relaybus.Handle("g", []string{"bill.*"}, ignore), relaybus.Handle("i", []string{"order.lost"}, ignore))
	if !errors.Is(err, relaybus.ErrUnknownEventType) || !errors.Is(err, relaybus.ErrConfiguration) {
		t.Errorf("subscribe: %v", err)
	}
	for _, text := range []string{`"g"`, `"i"`} {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not name handler %s: %v", text, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), `"h"`) {
		t.Errorf("order.* fits order.placed.v1: %v", err)
	}
}

// B8, F05: what comes in comes out, byte for byte on this store.
func TestPublishKeepsValues(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"numbers":       `{"a":9007199254740993,"b":-9223372036854775808,"c":18446744073709551615,"d":0.1234567890123456789,"e":1.0,"f":1e2,"g":-0,"h":123456789012345678901234567890}`,
		"34 digits":     `1234567890123456789012345678901234`,
		"exponent":      `1e6000`,
		"NUL":           `"a\u0000b"`,
		"escaped":       `"\\u0000"`,
		"pair":          `"\ud83d\ude00 😀"`,
		"replacement":   `"\ufffd �"`,
		"order":         `{"z":1,"a":{"y":2,"b":3}}`,
		"empty":         `{"a":"","b":null,"c":[],"d":{}}`,
		"html":          `"<img src=x onerror=alert(1)> & \u2028"`,
		"depth":         deep(89),
		"null":          `null`,
		"with space":    " { \"a\" : 1 }\n",
		"empty name":    `{"":1}`,
		"separate case": `{"a":1,"A":2}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got, headers string
			b := newBed(t, nil, things("h", func(_ context.Context, e *relaybus.RawEvent) error {
				got, headers = string(e.Payload), string(e.Headers.JSON())
				return nil
			}))
			b.publish(relaybus.Raw("thing.done", json.RawMessage(text), relaybus.ID("e-1"), relaybus.Header("v", json.RawMessage(text))))
			b.drain()
			if got != text {
				t.Errorf("handler got %q, want %q", got, text)
			}
			if want := `{"v":` + text + `}`; headers != want {
				t.Errorf("headers are %q, want %q", headers, want)
			}
			e, _, err := b.Event(t.Context(), "e-1")
			if err != nil || string(e.Payload) != text {
				t.Errorf("Event returned %q, %v", e.Payload, err)
			}
		})
	}
}

func TestPublishRawHeaders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []relaybus.PublishOption
		want    string
	}{
		"none":         {nil, ""},
		"empty object": {[]relaybus.PublishOption{relaybus.RawHeaders(json.RawMessage(`{}`))}, `{}`},
		"as it is":     {[]relaybus.PublishOption{relaybus.RawHeaders(json.RawMessage(`{"a": 1.0}`))}, `{"a": 1.0}`},
		"and more":     {[]relaybus.PublishOption{relaybus.RawHeaders(json.RawMessage(` { "a": 1.0 } `)), relaybus.Header("b", "x")}, `{"a":1.0,"b":"x"}`},
		"empty and":    {[]relaybus.PublishOption{relaybus.RawHeaders(json.RawMessage(`{ }`)), relaybus.Header("b", nil)}, `{"b":null}`},
		"nil option":   {[]relaybus.PublishOption{nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.publish(raw("e-1", c.options...))
			e, _, err := b.Event(t.Context(), "e-1")
			if err != nil {
				t.Fatal(err)
			}
			if got := string(e.Headers.JSON()); got != c.want {
				t.Errorf("headers are %q, want %q", got, c.want)
			}
			if c.want == "" && e.Headers.JSON() != nil {
				t.Error("absent headers came back as empty ones")
			}
		})
	}
}

func TestMaxPayloadIsExact(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *relaybus.Config) { c.MaxPayload, c.MaxHeaders = 10, 12 })
	if err := b.tryPublish(relaybus.Raw("t", json.RawMessage(`"12345678"`), relaybus.Header("a", "1234"))); err != nil {
		t.Errorf("10 bytes and 12 of headers: %v", err)
	}
	if err := b.tryPublish(relaybus.Raw("t", json.RawMessage(`"123456789"`))); !errors.Is(err, relaybus.ErrValidation) {
		t.Errorf("11 bytes: %v", err)
	}
	if err := b.tryPublish(relaybus.Raw("t", json.RawMessage(`1`), relaybus.Header("a", "12345"))); !errors.Is(err, relaybus.ErrValidation) {
		t.Errorf("13 bytes of headers: %v", err)
	}
}

// A payload that does not fit the handler's Go type can never be handled.
func TestDecodeMismatchIsPermanent(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{
		"type": `{"id":17}`, "array": `[]`, "overflow": `{"total":1e40}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil, orderPlaced().Handle("h", func(context.Context, *relaybus.Event[order]) error {
				t.Error("the handler was called")
				return nil
			}))
			b.publish(relaybus.Raw("order.placed.v1", json.RawMessage(payload)))
			b.drain()
			if d := b.only(relaybus.Filter{Status: relaybus.StatusDead}); d.Attempts != 1 || !strings.Contains(d.Error, "decode payload") || strings.Contains(d.Error, "17") {
				t.Errorf("delivery is %+v", d)
			}
		})
	}
}

// Numbers that are decoded into an interface keep their digits.
func TestDecodeKeepsDigits(t *testing.T) {
	t.Parallel()
	var got any
	b := newBed(t, nil, relaybus.Define[any]("t").Handle("h", func(_ context.Context, e *relaybus.Event[any]) error {
		got = e.Payload
		return nil
	}))
	b.publish(relaybus.Define[any]("t").New(json.Number("1546130668394913822")))
	b.drain()
	if got != json.Number("1546130668394913822") {
		t.Errorf("handler got %#v", got)
	}
}

// F30, F47: hostile texts go through everything as what they are.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"script": `<img src=x onerror=alert(1)>`, "sql": `'; DROP TABLE events; --`, "like": `%_\`, "json": `{"$ne":null}`,
		"operator": `$where`, "path": `../../etc/passwd`, "formula": `=cmd()`, "quotes": "`\"'", "dots": `a.b.$c`,
		"braces": `{a,b}`, "unicode": "☃\u202e\u2028é", "format": `%s%n%!d(MISSING)`, "long": strings.Repeat("é", 127),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			eventType := strings.ReplaceAll(strings.ReplaceAll(text, " ", ""), "\u2028", "")
			b := newBed(t, nil, relaybus.Handle(text, []string{eventType}, func(context.Context, *relaybus.RawEvent) error {
				return relaybus.Permanent(errors.New(text))
			}))
			b.publish(relaybus.Raw(eventType, json.RawMessage(`{}`), relaybus.ID(text), relaybus.Key(text), relaybus.CorrelationID(text), relaybus.CausationID(text), relaybus.Header(text, text)))
			b.drain()
			for _, f := range []relaybus.Filter{{Handler: text}, {EventType: eventType}, {EventID: text}, {Key: text}} {
				f.Status = relaybus.StatusDead
				if d := b.only(f); d.ID != (relaybus.DeliveryID{EventID: text, Handler: text}) || d.Error != text || d.Event.Type != eventType {
					t.Errorf("listed %+v", d)
				}
			}
			e, _, err := b.Event(ctx, text)
			if err != nil || e.Headers.Get(text) != text {
				t.Errorf("Event: %v, header %q", err, e.Headers.Get(text))
			}
			if err := b.Requeue(ctx, relaybus.DeliveryID{EventID: text, Handler: text}); err != nil {
				t.Errorf("Requeue: %v", err)
			}
			if n := b.drain(); n != 1 {
				t.Errorf("%d ran after the requeue", n)
			}
			if n, err := b.RequeueWhere(ctx, relaybus.Filter{Key: text}); n != 1 || err != nil {
				t.Errorf("RequeueWhere: %d, %v", n, err)
			}
			if err := b.Bury(ctx, relaybus.DeliveryID{EventID: text, Handler: text}, text+"\x00\xff"); err != nil {
				t.Errorf("Bury: %v", err)
			}
			if err := b.Pause(ctx, text); err != nil {
				t.Errorf("Pause: %v", err)
			}
			if err := b.Resume(ctx, text); err != nil {
				t.Errorf("Resume: %v", err)
			}
		})
	}
}

func TestGeneratedIDIsChecked(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *relaybus.Config) { c.GenerateID = func() string { return "" } })
	if err := b.tryPublish(relaybus.Raw("t", json.RawMessage(`1`))); !errors.Is(err, relaybus.ErrValidation) {
		t.Errorf("an empty generated id: %v", err)
	}
}

func TestGeneratedIDs(t *testing.T) {
	t.Parallel()
	b := newBedOn(t, memstore.New(memstore.Config{}), nil, relaybus.Handle("h", []string{"*"}, ignore))
	for range 50 {
		b.publish(relaybus.Raw("t", json.RawMessage(`1`)), relaybus.Raw("t", json.RawMessage(`1`)))
	}
	last := ""
	for _, d := range b.list(relaybus.Filter{}) {
		if len(d.ID.EventID) != 36 || d.ID.EventID[14] != '7' || d.ID.EventID <= last {
			t.Errorf("id %s after %s is no growing UUID of version 7", d.ID.EventID, last)
		}
		last = d.ID.EventID
	}
}

// However deep the interface is.
func TestDecodeNumbersWithin(t *testing.T) {
	t.Parallel()
	type line struct{ Extra map[string][]any }
	type order struct {
		Number int64
		Lines  []line
	}
	define := relaybus.Define[order]("t")
	var got order
	b := newBed(t, nil, define.Handle("h", func(_ context.Context, e *relaybus.Event[order]) error {
		got = e.Payload
		return nil
	}))
	b.publish(define.New(order{
		Number: 1546130668394913822,
		Lines:  []line{{Extra: map[string][]any{"a": {json.Number("1546130668394913823")}}}},
	}))
	b.drain()
	if got.Number != 1546130668394913822 || got.Lines[0].Extra["a"][0] != json.Number("1546130668394913823") {
		t.Errorf("decoded %+v", got)
	}
}
