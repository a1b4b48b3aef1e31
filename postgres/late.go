package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/relaybus-go/relaybus/store"
)

// late is an append whose result is known before the server has it. In a transaction
// that the store opened it goes there with whatever comes next: mostly the commit, so
// that it costs no round trip of its own, and holds the locks of its keys for that
// long only. Whoever uses the transaction by the driver's means finds it there, as
// those go through a guard.
type late struct {
	*appending
	events []store.NewEvent
	plan   *appendPlan
}

// postpone keeps an append for later if that makes no difference. The caller holds
// the transaction's mutex, and nothing else is kept.
func (t *transaction) postpone(a *appending, events []store.NewEvent, plan *appendPlan) bool {
	if t.guard == nil || t.guard.open || a.s != t.owner || a.s.cfg.NotifyInTransaction ||
		!allFresh(events, plan) || piece(events, 0) < len(events) {
		return false
	}
	t.late = &late{appending: a, events: events, plan: plan}
	a.staged(events, a.list, plan)
	return true
}

func (l *late) add(p *pipeline) {
	if len(l.events) > 1 {
		if text, args := l.lockStatement(l.events); text != "" {
			p.add(text, noRows, args...)
		}
	}
	for _, one := range l.freshStatements(l.events, l.plan) {
		p.add(one.text, noRows, one.args...)
	}
}

// prepare makes a transaction ready for statements of the store. The caller holds
// the mutex.
func (t *transaction) prepare(ctx context.Context, op string) error {
	if t.conn != nil {
		if err := inTransaction(op, t.conn.Conn()); err != nil {
			return err
		}
	}
	return t.flush(ctx)
}

// flush sends what was kept. The caller holds the mutex.
func (t *transaction) flush(ctx context.Context) error {
	l := t.late
	if l == nil {
		return nil
	}
	t.late = nil
	p := &pipeline{s: t.owner}
	l.add(p)
	if err := p.run(ctx, t.conn); err != nil {
		t.broken = translate("append events", t.owner.unfit(ctx, err))
		return t.broken
	}
	return nil
}

// commitLate commits with what was kept, in one round trip.
func (t *transaction) commitLate(ctx context.Context) error {
	p := &pipeline{s: t.owner}
	t.late.add(p)
	t.late = nil
	p.commit()
	return t.owner.unfit(ctx, p.run(ctx, t.conn))
}

// guard is the driver's transaction as callers get it.
type guard struct {
	pgx.Tx

	t *transaction
	// open says that statements may come by another way.
	open bool
}

// before makes way for a use of the transaction.
func (g *guard) before(ctx context.Context) error {
	g.t.mu.Lock()
	defer g.t.mu.Unlock()
	if g.t.done {
		return pgx.ErrTxClosed
	}
	return g.t.flush(ctx)
}

// give makes way for uses that are not seen.
func (g *guard) give(ctx context.Context) error {
	g.t.mu.Lock()
	g.open = true
	g.t.mu.Unlock()
	return g.before(ctx)
}

func (g *guard) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := g.give(ctx); err != nil {
		return nil, err
	}
	return g.Tx.Begin(ctx)
}

func (g *guard) Commit(ctx context.Context) error {
	if err := g.before(ctx); err != nil {
		if !errors.Is(err, pgx.ErrTxClosed) {
			err = errors.Join(err, g.Tx.Rollback(ctx))
		}
		return err
	}
	return g.Tx.Commit(ctx)
}

func (g *guard) Rollback(ctx context.Context) error {
	g.t.mu.Lock()
	done := g.t.done
	g.t.late = nil
	g.t.mu.Unlock()
	if done {
		return pgx.ErrTxClosed
	}
	return g.Tx.Rollback(ctx)
}

func (g *guard) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := g.before(ctx); err != nil {
		return 0, err
	}
	return g.Tx.CopyFrom(ctx, table, columns, source)
}

func (g *guard) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := g.before(ctx); err != nil {
		return refusedBatch{err}
	}
	return g.Tx.SendBatch(ctx, b)
}

func (g *guard) Prepare(ctx context.Context, name, text string) (*pgconn.StatementDescription, error) {
	if err := g.before(ctx); err != nil {
		return nil, err
	}
	return g.Tx.Prepare(ctx, name, text)
}

func (g *guard) Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error) {
	if err := g.before(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return g.Tx.Exec(ctx, text, args...)
}

func (g *guard) Query(ctx context.Context, text string, args ...any) (pgx.Rows, error) {
	if err := g.before(ctx); err != nil {
		return refusedRows{err}, err
	}
	return g.Tx.Query(ctx, text, args...)
}

func (g *guard) QueryRow(ctx context.Context, text string, args ...any) pgx.Row {
	if err := g.before(ctx); err != nil {
		return refusedRow{err}
	}
	return g.Tx.QueryRow(ctx, text, args...)
}

// An error of what these two send is found at the commit.

func (g *guard) LargeObjects() pgx.LargeObjects {
	_ = g.give(context.Background()) //nolint:forbidigo // The method has no context.
	return g.Tx.LargeObjects()
}

func (g *guard) Conn() *pgx.Conn {
	if err := g.give(context.Background()); errors.Is(err, pgx.ErrTxClosed) { //nolint:forbidigo // The same.
		return nil
	}
	return g.Tx.Conn()
}
