package fleettest

import (
	"slices"
	"strings"
	"testing"
)

// history is that of an order which one process handles, and of which another one takes over the plain handler.
func history() []Entry {
	first := func(e Entry) Entry { e.Process = "first"; return e }
	second := func(e Entry) Entry { e.Process = "second"; return e }
	at := func(ms int64, e Entry) Entry { e.At = ms; return e }
	follow := func(attempt int) Entry {
		return Entry{Event: "o", Handler: HandlerFollow, Key: "k", Sequence: 7, Attempt: attempt}
	}
	what := func(w string, e Entry) Entry { e.What = w; return e }
	claim := func(now, generation int64, attempt, lost int) Entry {
		return Entry{What: SaidClaim, Now: now, Claims: []Taken{{
			Event: "o", Handler: HandlerFollow, Generation: generation, Attempt: attempt, Lost: lost,
		}}}
	}
	return []Entry{
		{Process: "publisher", What: SaidPublishing, Event: "o", Key: "k"},
		{Process: "publisher", What: SaidCommitted, Event: "o"},
		at(1000, first(claim(1000, 0, 1, 0))),
		at(1000, first(what(SaidStart, follow(1)))),
		at(1100, first(Entry{What: SaidCrash, Text: PointHandler})),
		{Process: "fleet", What: SaidDead, Text: "first", At: 1110},
		at(2200, second(claim(2200, 1, 2, 1))),
		at(2201, second(what(SaidStart, follow(2)))),
		at(2202, second(what(SaidEnd, follow(2)))),
		at(2203, second(what(SaidSucceeded, follow(2)))),
	}
}

func keptOf() Contents {
	return Contents{
		Events: []*StoredEvent{{
			ID: "o", Type: OrderPlaced.Name(), Key: "k", Sequence: 7, Payload: OrderOf{ID: "o"}, Handlers: 5, Completed: 5,
		}},
		Orders: []string{"o"}, Effects: []string{"o"}, Left: map[string]int{"owners": 0},
	}
}

// TestCheckFinds plants mistakes of a store into what was fine.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	change := func(i int, f func(e *Entry)) func(log []Entry, kept *Contents) []Entry {
		return func(log []Entry, _ *Contents) []Entry { f(&log[i]); return log }
	}
	inStore := func(f func(kept *Contents)) func(log []Entry, kept *Contents) []Entry {
		return func(log []Entry, kept *Contents) []Entry { f(kept); return log }
	}
	insert := func(i int, e Entry) func(log []Entry, kept *Contents) []Entry {
		return func(log []Entry, _ *Contents) []Entry { return slices.Insert(log, i, e) }
	}
	for name, test := range map[string]struct {
		plant func(log []Entry, kept *Contents) []Entry
		check func(r *Report)
		want  string // "" is none
	}{
		"nothing":                  {check: (*Report).checkDuplicates},
		"nothing of charges":       {check: (*Report).checkCharges},
		"nothing of order":         {check: (*Report).checkOrder},
		"nothing of publishes":     {check: (*Report).checkPublishes, want: "only 1 keys"},
		"an owner is left":         {plant: inStore(func(k *Contents) { k.Left["owners"] = 1 }), check: (*Report).checkRest, want: "I6: 1 owners"},
		"an event is lost":         {plant: inStore(func(k *Contents) { k.Events = nil }), check: (*Report).checkPublishes, want: "I1: o was committed"},
		"a row without event":      {plant: inStore(func(k *Contents) { k.Events = nil }), check: (*Report).checkRows, want: "I1: the row o"},
		"an event without row":     {plant: inStore(func(k *Contents) { k.Orders = nil }), check: (*Report).checkRows, want: "I2: the event o"},
		"an effect too many":       {plant: inStore(func(k *Contents) { k.Effects = append(k.Effects, "o") }), check: (*Report).checkEffects, want: "I3: 2 effects"},
		"a completion too many":    {plant: inStore(func(k *Contents) { k.Events[0].Completed++ }), check: (*Report).checkHandled, want: "I5: 6 completions"},
		"what was undone is there": {plant: change(1, func(e *Entry) { e.What = SaidRolledBack }), check: (*Report).checkPublishes, want: "I2: o was rolled back"},
		"a phantom is executed":    {plant: change(7, func(e *Entry) { e.Event = "p" }), check: (*Report).checkHandled, want: "I2: p was executed"},
		"a takeover within the lease": {
			plant: change(7, func(e *Entry) { e.At = 1500 }), check: (*Report).checkDuplicates, want: "I5: first ran o",
		},
		"two at once": {
			plant: insert(4, Entry{Process: "second", What: SaidStart, Event: "p", Handler: HandlerFollow, Key: "k", Sequence: 8, At: 1001}),
			check: (*Report).checkOrder, want: "I5: first ran o",
		},
		"the wrong order": {
			plant: insert(10, Entry{Process: "second", What: SaidStart, Event: "n", Handler: HandlerFollow, Key: "k", Sequence: 6, At: 9000}),
			check: (*Report).checkOrder, want: "I4: n with sequence 6",
		},
		"again after a completion": {
			plant: insert(5, Entry{Process: "first", What: SaidSucceeded, Event: "o", Handler: HandlerFollow, Attempt: 1}),
			check: (*Report).checkDuplicates, want: "I3: o was executed",
		},
		"a generation is claimed twice": {
			plant: change(6, func(e *Entry) { e.Claims[0].Generation, e.Claims[0].Lost = 0, 0 }), check: (*Report).checkCharges, want: "I5: generation 0",
		},
		"no attempt is charged": {
			plant: change(6, func(e *Entry) { e.Claims[0].Attempt, e.Claims[0].Lost = 1, 0 }), check: (*Report).checkCharges, want: "S8: first died",
		},
		"an error":  {plant: insert(2, Entry{What: SaidTrouble}), check: (*Report).checkTrouble, want: "L1"},
		"an outage": {plant: insert(2, Entry{What: SaidOutage}), check: (*Report).checkTrouble, want: "L1"},
		"an expected outage": {plant: func(log []Entry, _ *Contents) []Entry {
			return append([]Entry{{What: SaidFault}, {What: SaidOutage}}, log...)
		}, check: (*Report).checkTrouble},
		"a slow recovery": {
			plant: change(6, func(e *Entry) { e.Now = 60_000 }), check: func(r *Report) { r.checkCharges(); r.checkRecovery() }, want: "I6: a twentieth",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFleet(t, "", Points{}, 1)
			f.killed["first"], f.workers = true, 1
			log, kept := history(), keptOf()
			if test.plant != nil {
				log = test.plant(log, &kept)
			}
			r := newReport(t, f, kept)
			r.log = log
			r.read()
			r.found = nil
			test.check(r)
			if found := strings.Join(r.found, "\n"); test.want == "" && found != "" || !strings.Contains(found, test.want) {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}

// TestLog writes entries by several hands, one of which is cut off.
func TestLog(t *testing.T) {
	t.Parallel()
	f := NewFleet(t, "", Points{}, 1)
	other, err := OpenLog(f.log, "other")
	if err != nil {
		t.Fatal(err)
	}
	f.Say(SaidFault, "a restart")
	if _, err := other.file.WriteString("\n{\"process\":\"oth"); err != nil {
		t.Fatal(err)
	}
	f.Say(SaidMended, "")
	other.Say(Entry{What: SaidUp})
	list, torn := ReadLog(t, f.log)
	var got []string
	for _, e := range list {
		got = append(got, e.Process+" "+e.What)
	}
	if want := []string{"fleet fault", "fleet mended", "other up"}; !slices.Equal(got, want) || torn != 1 {
		t.Errorf("read %v and %d torn lines, want %v and 1", got, torn, want)
	}
	if f.faults != 1 {
		t.Errorf("%d faults, want 1", f.faults)
	}
}
