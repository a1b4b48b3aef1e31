package postgres

import (
	"cmp"
	"context"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/lane"
)

func allFresh(events []store.NewEvent, plan *appendPlan) bool {
	for i := range events {
		if !events[i].Fresh || plan.twice[i] {
			return false
		}
	}
	return true
}

// statement is one with its arguments.
type statement struct {
	text string
	args []any
}

// freshStatements append events that can't be there, with their deliveries. The keys
// of several are locked before. They fail when the schema does not fit.
func (a *appending) freshStatements(events []store.NewEvent, plan *appendPlan) []statement {
	if len(events) == 1 {
		return a.oneStatements(&events[0], plan.refs[0], a.s.sql.addFresh, a.s.sql.addFreshKeyed)
	}
	lanes, dues := make([]int16, len(events)), make([]int64, len(events))
	for i := range events {
		lanes[i], dues[i] = int16(lane.Of(events[i].Key, events[i].ID)), events[i].DueAt.UnixMilli()
	}
	return []statement{{a.s.sql.addManyFresh, append(plan.args(a, events), lanes, dues, a.now)}}
}

// fresh appends events that can't be there.
func (a *appending) fresh(
	ctx context.Context, events []store.NewEvent, list []store.Appended, plan *appendPlan,
) error {
	for _, one := range a.freshStatements(events, plan) {
		if _, err := a.exec(ctx, one.text, one.args...); err != nil {
			return a.s.unfit(ctx, err)
		}
	}
	a.staged(events, list, plan)
	return nil
}

// staged notes fresh events.
func (a *appending) staged(events []store.NewEvent, list []store.Appended, plan *appendPlan) {
	a.onCommit(func() { a.s.appends.Add(int64(len(events))) })
	for i := range events {
		list[i] = a.inserted(&events[i], plan.refs[i])
	}
}

// unfit says why a statement failed that needs a schema which fits.
func (s *Store) unfit(ctx context.Context, err error) error {
	if stateOf(err) != codeDivisionByZero {
		return err
	}
	const op = "append events"
	return cmp.Or(s.read(ctx, op, func(context.Context, *session) error { return nil }),
		error(store.NewError(op, store.ErrForeignTx, "", err)))
}

// nullable makes an array of texts some of which may be absent.
type nullable struct {
	texts []string
	list  []*string
}

func newNullable(n int) *nullable { return &nullable{list: make([]*string, 0, n)} }

func (l *nullable) add(text string, given bool) {
	if !given {
		l.list = append(l.list, nil)
		return
	}
	if l.texts == nil {
		l.texts = make([]string, 0, cap(l.list)) // They are pointed to, so they never move.
	}
	l.texts = append(l.texts, text)
	l.list = append(l.list, &l.texts[len(l.texts)-1])
}

// array is nil, which is an array of NULLs to an unnest beside others, when all are
// absent.
func (l *nullable) array() []*string {
	if l.texts == nil {
		return nil
	}
	return l.list
}
