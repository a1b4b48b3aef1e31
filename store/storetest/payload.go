package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func payloadCases() []testCase {
	return []testCase{
		{name: "B8 F05 F08 Z1 payloads come back as they went in", run: payloadsKept},
		{name: "B8 F05 headers come back as they went in", run: headersKept},
		{name: "B8 F30 F47 names and keys come back as they went in", run: namesKept},
		{name: "B8 every field of an event", run: fieldsKept},
		{name: "B8 times are kept to the millisecond in UTC", run: timesKept},
		{name: "B8 a caller's buffers are its own", run: buffersKept},
		{name: "F08 error texts of any kind and length", run: errorTextsKept},
		{name: "S15 a payload above the store's limit", needs: needsLimit, run: payloadLimit},
	}
}

func needsLimit(p profile) string {
	if p.features.MaxPayloadBytes == 0 {
		return "the store has no limit of its own"
	}
	return ""
}

// same says what differs between what went in and what came back, or "".
func (b *bed) same(want, got []byte) string {
	if !b.s.Features().PayloadByValue {
		if !bytes.Equal(want, got) || (want == nil) != (got == nil) {
			return "came back as " + shorten(got)
		}
		return ""
	}
	if (want == nil) != (got == nil) {
		return "came back as " + shorten(got)
	}
	if want == nil {
		return ""
	}
	return differenceByValue(want, got)
}

func shorten(text []byte) string {
	if len(text) > 300 {
		return fmt.Sprintf("%q… (%d bytes)", text[:300], len(text))
	}
	return fmt.Sprintf("%q", text)
}

// differenceByValue compares token by token: numbers as decimals, strings as
// code points, members in order.
func differenceByValue(want, got []byte) string {
	one, two := json.NewDecoder(bytes.NewReader(want)), json.NewDecoder(bytes.NewReader(got))
	one.UseNumber()
	two.UseNumber()
	for {
		a, errA := one.Token()
		b, errB := two.Token()
		if errors.Is(errA, io.EOF) && errors.Is(errB, io.EOF) {
			return ""
		}
		if errA != nil || errB != nil {
			return fmt.Sprintf("ended with %v, want %v", errB, errA)
		}
		numberA, isA := a.(json.Number)
		numberB, isB := b.(json.Number)
		if isA && isB {
			ratA, okA := new(big.Rat).SetString(numberA.String())
			ratB, okB := new(big.Rat).SetString(numberB.String())
			if !okA || !okB || ratA.Cmp(ratB) != 0 {
				return fmt.Sprintf("%s became %s", numberA, numberB)
			}
			continue
		}
		if a != b {
			return fmt.Sprintf("%v became %v", a, b)
		}
	}
}

// throughStore publishes the events and calls check with each event as it comes
// from a claim on another instance, and from GetEvent.
func (b *bed) throughStore(events []store.NewEvent, check func(want, got store.Event)) {
	b.t.Helper()
	want := make(map[string]store.Event)
	for i := range events {
		events[i].Handlers = []store.Handler{{ID: "h"}}
		want[events[i].ID] = events[i].Event
	}
	b.publish(events...)
	other := b.open()
	seen := 0
	for {
		claimed := b.claimOn(other, request("w", b.now, 100, "h"))
		if len(claimed) == 0 {
			break
		}
		for _, c := range claimed {
			seen++
			check(want[c.Event.ID], c.Event)
			got, _, err := b.s.GetEvent(b.ctx(), c.Event.ID)
			if err != nil {
				b.t.Fatalf("get %q: %v", c.Event.ID, err)
			}
			check(want[c.Event.ID], got)
			if ok := b.settleOn(other, "w", completion(c)); !ok[0] {
				b.t.Errorf("completion of %q was refused", c.Event.ID)
			}
		}
	}
	if seen != len(events) {
		b.t.Errorf("%d of %d events came back", seen, len(events))
	}
}

func payloadsKept(b *bed) {
	limit := b.s.Features().MaxPayloadBytes
	var events []store.NewEvent
	for _, sample := range Payloads() {
		if limit > 0 && len(sample.JSON) > limit {
			b.t.Logf("%s is above the limit of the store", sample.Name)
			continue
		}
		e := b.event(sample.Name, "")
		e.Payload = []byte(sample.JSON)
		events = append(events, e)
	}
	b.throughStore(events, func(want, got store.Event) {
		if difference := b.same(want.Payload, got.Payload); difference != "" {
			b.t.Errorf("payload %s %s", got.ID, difference)
		}
		if got.Headers != nil {
			b.t.Errorf("headers came up from nowhere: %s", shorten(got.Headers))
		}
	})
}

func headersKept(b *bed) {
	var events []store.NewEvent
	for _, sample := range HeaderSets() {
		e := b.event(sample.Name, "")
		if sample.JSON != "" {
			e.Headers = []byte(sample.JSON)
		}
		events = append(events, e)
	}
	b.throughStore(events, func(want, got store.Event) {
		if difference := b.same(want.Headers, got.Headers); difference != "" {
			b.t.Errorf("headers %s %s", got.ID, difference)
		}
	})
}

func namesKept(b *bed) {
	var events []store.NewEvent
	for _, text := range HostileStrings() {
		e := b.event(text, text)
		e.Type, e.Source, e.CorrelationID, e.CausationID = text, text, text, text
		events = append(events, e)
	}
	b.throughStore(events, func(want, got store.Event) {
		want.Sequence, got.Sequence = 0, 0
		if !sameEvent(want, got) {
			b.t.Errorf("%q came back as %+v", want.ID, got)
		}
	})
	// As handler ids, each sees its own delivery and no other.
	all := b.event("all", "k", HostileStrings()...)
	b.wantAppended(b.publish(all)[0], true, len(HostileStrings()))
	for _, text := range HostileStrings() {
		got := b.claim("w", plenty, text)
		if len(got) != 1 || got[0].Lease.Handler != text {
			b.t.Fatalf("handler %q claimed %v", text, names(got))
		}
		b.complete("w", got...)
	}
	b.counts(0, 0, 0)
}

func sameEvent(a, b store.Event) bool {
	return a.ID == b.ID && a.Type == b.Type && a.Source == b.Source && a.Key == b.Key && a.Sequence == b.Sequence &&
		bytes.Equal(a.Payload, b.Payload) && bytes.Equal(a.Headers, b.Headers) &&
		a.CorrelationID == b.CorrelationID && a.CausationID == b.CausationID && a.CreatedAt.Equal(b.CreatedAt)
}

func fieldsKept(b *bed) {
	full := b.event("full", "key")
	full.Headers, full.CorrelationID, full.CausationID = []byte(`{"a":"b"}`), "correlation", "causation"
	bare := b.event("bare", "")
	bare.Source = ""
	b.throughStore([]store.NewEvent{full, bare}, func(want, got store.Event) {
		if (got.Sequence > 0) != (want.Key != "") {
			b.t.Errorf("%s has sequence %d", want.ID, got.Sequence)
		}
		want.Sequence = got.Sequence
		if difference := b.same(want.Payload, got.Payload); difference != "" {
			b.t.Errorf("payload of %s %s", want.ID, difference)
		}
		want.Payload, got.Payload = nil, nil
		if !sameEvent(want, got) || (want.Headers == nil) != (got.Headers == nil) {
			b.t.Errorf("%+v came back as %+v", want, got)
		}
	})
}

func timesKept(b *bed) {
	zone := time.FixedZone("somewhere", 5*3600+1800)
	var events []store.NewEvent
	for i, at := range []time.Time{
		time.Date(2026, 3, 29, 1, 59, 59, 999_000_000, time.UTC), time.Date(2026, 3, 1, 12, 0, 0, 1_000_000, zone),
		time.Date(1970, 1, 1, 0, 0, 0, 1_000_000, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 999_000_000, time.UTC),
		time.Date(2400, 2, 29, 0, 0, 0, 0, time.UTC), b.now.Add(time.Millisecond),
	} {
		e := b.event(numberedName("e", i), "")
		e.CreatedAt = at
		events = append(events, e)
	}
	b.throughStore(events, func(want, got store.Event) {
		if !got.CreatedAt.Equal(want.CreatedAt) || got.CreatedAt.Location() != time.UTC {
			b.t.Errorf("%v came back as %v", want.CreatedAt, got.CreatedAt)
		}
	})
	due := b.event("due", "", "g")
	due.DueAt = b.now.Add(90 * time.Millisecond).In(zone)
	b.publish(due)
	d := b.delivery("due", "g")
	if !d.DueAt.Equal(due.DueAt) || d.DueAt.Location() != time.UTC || !d.UpdatedAt.Equal(b.now) || d.UpdatedAt.Location() != time.UTC {
		b.t.Errorf("due at %v, updated at %v; want %v and %v in UTC", d.DueAt, d.UpdatedAt, due.DueAt, b.now)
	}
	b.now = due.DueAt
	got := b.one("w", "g", "due")
	if !got.DueAt.Equal(due.DueAt) || got.DueAt.Location() != time.UTC {
		b.t.Errorf("claimed with due time %v, want %v in UTC", got.DueAt, due.DueAt)
	}
}

// buffersKept: what a caller does with its buffers after a call, or with what a
// call returned, changes nothing in the store.
func buffersKept(b *bed) {
	e := b.event("e", "k", "h")
	e.Payload, e.Headers = []byte(`{"a":"first"}`), []byte(`{"b":"first"}`)
	b.publish(e)
	spoil := func(payload, headers []byte) {
		copy(payload, "XXXXXXXXXXXXX")
		copy(headers, "XXXXXXXXXXXXX")
	}
	spoil(e.Payload, e.Headers)
	e.Handlers[0].ID = "other"
	for range 2 {
		got, _, err := b.s.GetEvent(b.ctx(), "e")
		if err != nil {
			b.t.Fatalf("get: %v", err)
		}
		if !bytes.Contains(got.Payload, []byte("first")) || !bytes.Contains(got.Headers, []byte("first")) {
			b.t.Fatalf("a caller's buffer reached the store: %s %s", got.Payload, got.Headers)
		}
		spoil(got.Payload, got.Headers)
		c := b.one("w", "h", "e")
		if !bytes.Contains(c.Event.Payload, []byte("first")) || !bytes.Contains(c.Event.Headers, []byte("first")) {
			b.t.Fatalf("a reader's buffer reached the store: %s %s", c.Event.Payload, c.Event.Headers)
		}
		spoil(c.Event.Payload, c.Event.Headers)
		b.settle("w", release(c))
	}
}

func errorTextsKept(b *bed) {
	texts := append(HostileStrings(), "", "line\nline\ttab\r\n", strings.Repeat("long ", 40_000))
	b.publish(b.event("e", "k", "h"))
	for i, text := range texts {
		c := b.one("w", "h", "e")
		if c.Attempt != i+1 {
			b.t.Fatalf("attempt %d, want %d", c.Attempt, i+1)
		}
		b.settle("w", store.Settlement{Lease: c.Lease, Action: store.Reschedule, DueAt: b.now, Error: text})
		if got := b.delivery("e", "h").Error; got != text {
			b.t.Errorf("error text %s came back as %s", shorten([]byte(text)), shorten([]byte(got)))
		}
	}
	c := b.one("w", "h", "e")
	b.settle("w", store.Settlement{Lease: c.Lease, Action: store.Bury, Error: texts[len(texts)-1]})
	if got := b.delivery("e", "h"); got.Error != texts[len(texts)-1] || got.Status != store.StatusDead {
		b.t.Errorf("%s with %s", got.Status, shorten([]byte(got.Error)))
	}
}

func payloadLimit(b *bed) {
	limit := b.s.Features().MaxPayloadBytes
	for _, size := range []int{limit - 1, limit, limit + 1} {
		e := b.event(numberedName("e", size), "", "h")
		e.Payload = []byte(`"` + strings.Repeat("x", size-2) + `"`)
		_, err := publish(b.ctx(), b.s, b.now, b.event(numberedName("with", size), "", "h"), e)
		if size <= limit {
			if err != nil {
				b.t.Errorf("a payload of %d bytes, with a limit of %d: %v", size, limit, err)
			}
			continue
		}
		b.wantError(err, store.ErrInvalidArgument)
		_, _, err = b.s.GetEvent(b.ctx(), numberedName("with", size))
		b.wantError(err, store.ErrNotFound)
	}
}
