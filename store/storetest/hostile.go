package storetest

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

func hostileCases() []testCase {
	return []testCase{
		{name: "S14 F47 hostile filters select what is equal, and nothing else", run: hostileFilters},
		{name: "S14 F47 hostile cursors are refused", run: hostileCursors},
		{name: "S14 F47 hostile ids reach no other delivery", run: hostileIDs},
		{name: "S14 F47 hostile handlers and owners", run: hostileHandlers},
		{name: "S14 an unknown status is refused or selects nothing", run: unknownStatus},
		{name: "S14 F47 invalid text from outside", run: invalidText},
	}
}

// beyondCorpus are strings that can only come from outside, as no publish lets
// them in.
func beyondCorpus() []string {
	return []string{"\x00", "a\x00b", "\xff\xfe", "a\xc3", "\xed\xa0\x80", "\n", "\x1b[2J", strings.Repeat("x", 100_000), strings.Repeat("'\"\\%_", 5000)}
}

func hostileFilters(b *bed) {
	texts := HostileStrings()
	var events []store.NewEvent
	for _, text := range texts {
		e := b.event(text, text, text)
		e.Type = text
		events = append(events, e)
	}
	b.publish(events...)
	for _, text := range texts {
		for name, f := range map[string]store.Filter{
			"handler": {Handler: text}, "type": {EventType: text}, "event": {EventID: text}, "key": {Key: text},
			"all": {Handler: text, EventType: text, EventID: text, Key: text, Status: store.StatusPending},
		} {
			if got := b.list(f); len(got) != 1 || got[0].ID.EventID != text {
				b.t.Errorf("filter by %s %q selects %q", name, text, deliveryNames(got))
			}
		}
	}
	for _, text := range beyondCorpus() {
		for name, f := range map[string]store.Filter{
			"handler": {Handler: text}, "type": {EventType: text}, "event": {EventID: text}, "key": {Key: text},
		} {
			got, err := b.s.List(b.ctx(), f, store.Page{Limit: 10})
			if err != nil {
				b.wantError(err, store.ErrInvalidArgument)
			} else if len(got.Deliveries) != 0 {
				b.t.Errorf("filter by %s %q selects %q", name, text, deliveryNames(got.Deliveries))
			}
		}
	}
}

func hostileCursors(b *bed) {
	b.publish(b.numbered("e", 10, "", "h")...)
	first, err := b.s.List(b.ctx(), store.Filter{}, store.Page{Limit: 3})
	if err != nil || first.Next == "" {
		b.t.Fatalf("list: %+v, %v", first, err)
	}
	if strings.ContainsAny(first.Next, " \t\n\x00") {
		b.t.Errorf("the cursor %q is no token", first.Next)
	}
	bad := slices.Concat(HostileStrings(), beyondCorpus())
	encoded := base64.RawURLEncoding.EncodeToString([]byte("1:1:' OR 1=1 --"))
	bad = append(bad, encoded, first.Next+"x", first.Next+first.Next, "x"+first.Next, first.Next+" ", first.Next[:len(first.Next)-1]+"!",
		"99999999999999999999999999", "-1", "1.5", "1e9", "9223372036854775807", "-9223372036854775808")
	accepted := 0
	for _, cursor := range bad {
		got, err := b.s.List(b.ctx(), store.Filter{}, store.Page{Limit: 3, Cursor: cursor})
		if err != nil {
			b.wantError(err, store.ErrInvalidArgument)
			continue
		}
		// A store whose cursor is a plain position can't tell every forged one
		// from its own; then it is only a place to begin.
		accepted++
		if len(got.Deliveries) > 3 {
			b.t.Errorf("cursor %q brought %d rows", cursor, len(got.Deliveries))
		}
	}
	if accepted > 6 {
		b.t.Errorf("%d of %d cursors that nobody made were accepted", accepted, len(bad))
	}
	// A cursor of other filters is a place to begin, or refused.
	if _, err := b.s.List(b.ctx(), store.Filter{Handler: "other"}, store.Page{Limit: 3, Cursor: first.Next}); err != nil {
		b.wantError(err, store.ErrInvalidArgument)
	}
	rest, err := listAll(b.ctx(), b.s, store.Filter{}, 4)
	if err != nil || len(rest) != 10 {
		b.t.Errorf("%d deliveries are listed, %v", len(rest), err)
	}
}

func hostileIDs(b *bed) {
	b.publish(b.event("pending", "k", "h"), b.event("delayed", "", "h"))
	b.dead("dead", "", "d", false)
	before := b.snapshot()
	for _, text := range slices.Concat(HostileStrings(), beyondCorpus()) {
		for _, id := range []store.DeliveryID{{EventID: text, Handler: text}, {EventID: "dead", Handler: text}, {EventID: text, Handler: "d"}} {
			for name, err := range map[string]error{
				"requeue":            b.s.Requeue(b.ctx(), []store.DeliveryID{{EventID: "dead", Handler: "d"}, id}, b.now),
				"bury pending":       b.s.BuryPending(b.ctx(), id, "no", b.now),
				"reschedule pending": b.s.ReschedulePending(b.ctx(), id, b.now.Add(time.Hour), b.now),
				"skip":               b.s.Skip(b.ctx(), id, b.now),
			} {
				if problem := errorProblem(err); problem != "" {
					b.t.Errorf("%s of %q: %s", name, id, problem)
					continue
				}
				b.oneOf(err, store.ErrNotFound, store.ErrInvalidArgument)
			}
		}
		b.oneOf(b.s.CancelEvent(b.ctx(), text, b.now), store.ErrNotFound, store.ErrInvalidArgument)
		if _, _, err := b.s.GetEvent(b.ctx(), text); err == nil {
			b.t.Errorf("event %q exists", text)
		}
		n, err := b.s.RequeueWhere(b.ctx(), store.Filter{EventID: text}, 10, b.now)
		if n != 0 {
			b.t.Errorf("requeue where the event is %q requeued %d", text, n)
		}
		if err != nil {
			b.wantError(err, store.ErrInvalidArgument)
		}
		if n, err := b.s.DropPending(b.ctx(), text, 10, b.now); n != 0 {
			b.t.Errorf("drop of handler %q dropped %d, %v", text, n, err)
		}
	}
	if after := b.snapshot(); after != before {
		b.t.Errorf("hostile ids changed\n%s\nto\n%s", before, after)
	}
}

func hostileHandlers(b *bed) {
	b.publish(b.event("e", "k", "h"))
	for _, text := range HostileStrings() {
		if got := b.claim(text, plenty, text); len(got) != 0 {
			b.t.Errorf("handler %q claimed %v", text, names(got))
		}
		for name, err := range map[string]error{
			"retire": b.s.RetireHandler(b.ctx(), text, b.now),
			"pause":  b.s.PauseHandler(b.ctx(), text, true, b.now),
		} {
			if problem := errorProblem(err, store.ErrNotFound); problem != "" {
				b.t.Errorf("%s of %q: %s", name, text, problem)
			}
		}
	}
	c := b.one("'; --", "h", "e")
	if d := b.delivery("e", "h"); d.Owner != "'; --" {
		b.t.Errorf("the owner is %q", d.Owner)
	}
	b.complete("'; --", c)
}

func unknownStatus(b *bed) {
	b.publish(b.event("e", "k", "h"))
	for _, status := range []store.Status{"PENDING", "pending ", "ready", "parked", "0", "'", "%"} {
		got, err := b.s.List(b.ctx(), store.Filter{Status: status}, store.Page{Limit: 10})
		if err != nil {
			b.wantError(err, store.ErrInvalidArgument)
		} else if len(got.Deliveries) != 0 {
			b.t.Errorf("status %q selects %v", status, deliveryNames(got.Deliveries))
		}
		if n, err := b.s.RequeueWhere(b.ctx(), store.Filter{Status: status}, 10, b.now); n != 0 || err == nil {
			b.t.Errorf("requeue where the status is %q: %d, %v", status, n, err)
		} else {
			b.wantError(err, store.ErrInvalidArgument)
		}
	}
}

// invalidText: what no bus lets in must not do harm either when it reaches a
// store from an operator's request.
func invalidText(b *bed) {
	b.publish(b.event("e", "k", "h"))
	for _, text := range beyondCorpus() {
		if _, err := b.s.List(b.ctx(), store.Filter{EventID: text, Handler: text}, store.Page{Limit: 1, Cursor: text}); err == nil {
			b.t.Errorf("cursor %q was accepted", shorten([]byte(text)))
		}
		for _, err := range []error{b.s.PauseHandler(b.ctx(), text, true, b.now), b.s.RetireHandler(b.ctx(), text, b.now)} {
			b.oneOf(err, store.ErrNotFound, store.ErrInvalidArgument)
		}
	}
	b.complete("w", b.one("w", "h", "e"))
}
