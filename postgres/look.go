package postgres

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pipeline is a batch of statements in one transaction and one round trip, each
// with what reads its rows.
type pipeline struct {
	batch pgx.Batch
	reads []scanRow
	s     *Store
}

func (p *pipeline) add(text string, scan scanRow, args ...any) {
	p.batch.Queue(text, args...)
	p.reads = append(p.reads, scan)
}

func noRows(func(...any) error) (bool, error) { return true, nil }

// begin adds what comes first in a transaction of the store's own.
func (p *pipeline) begin(conn *pgxpool.Conn) {
	p.s.meter.begun()
	p.add(beginWriting, noRows)
	if !isSettled(conn.Conn()) {
		p.add(settings, noRows, true)
	}
	p.add(p.s.sql.fits, noRows)
}

// settled is the error of a pipeline that ended with a commit.
func (*pipeline) settled(op string, err error) error {
	switch {
	case err == nil || isRefusal(err) || pgconn.SafeToRetry(err):
		return err
	default:
		return uncertain(op, err)
	}
}

func (p *pipeline) commit() { p.add("commit", noRows) }

// run sends the batch and reads what comes back.
func (p *pipeline) run(ctx context.Context, conn *pgxpool.Conn) error {
	p.s.meter.trip()
	results := conn.SendBatch(ctx, &p.batch)
	var failed error
	for _, read := range p.reads {
		rows, err := results.Query()
		if err == nil {
			err = p.each(rows, read)
		}
		if err != nil {
			failed = err
			break
		}
	}
	if err := results.Close(); failed == nil {
		failed = err
	}
	return failed
}

func (p *pipeline) each(rows pgx.Rows, read scanRow) error {
	n := 0
	defer func() { p.s.meter.read(n) }()
	return each(rows, func(scan func(...any) error) (bool, error) {
		n++
		return read(scan)
	})
}

// on runs fn on a connection, again when it must; fn ends its transaction unless it
// fails.
func (s *Store) on(ctx context.Context, op string, fn func(ctx context.Context, conn *pgxpool.Conn) error) error {
	return s.retry(ctx, op, func(ctx context.Context) error {
		conn, err := s.acquire(ctx, op)
		if err != nil {
			return err
		}
		within, cancel := lasting(ctx)
		defer cancel()
		err = fn(within, conn)
		if err != nil {
			rollback(ctx, conn)
		}
		if stateOf(err) == codeDivisionByZero {
			x := &session{querier: native{conn}, s: s}
			err = cmp.Or(x.current(ctx), err)
		}
		s.release(ctx, conn, err)
		return translate(op, err)
	})
}

// look reads, without a lock, where something is due, and whether there is an
// owner to take over from.
func (c *claiming) look(ctx context.Context) error {
	for {
		again, err := c.lookOnce(ctx)
		if err != nil || !again {
			return err
		}
		// Ids of one handler were joined meanwhile.
		if err := c.resolve(ctx); err != nil {
			return err
		}
	}
}

// seenLane is a lane as a look sees it.
type seenLane struct {
	at     slice
	holder int64
	place
}

func (c *claiming) lookOnce(ctx context.Context) (again bool, err error) {
	me := c.w.id()
	var refs []int32
	several := false
	for i := range c.wants {
		refs = append(refs, c.wants[i].refs...)
		several = several || len(c.wants[i].refs) > 1
	}
	foreign := make(map[slice]int64)
	appends := c.s.appends.Load()
	var last int64
	c.w.mu.Lock()
	c.w.clock++
	mark := c.w.clock
	c.w.mu.Unlock()
	from := c.w.horizon.from(refs)
	began := time.Now()
	var lanes []seenLane
	busy := make(map[slice]struct{})
	handlers := newSpecial()
	var expired, found bool
	err = c.s.on(ctx, c.op, func(ctx context.Context, conn *pgxpool.Conn) error {
		lanes, expired, found = lanes[:0], false, false
		clear(busy)
		clear(foreign)
		handlers = newSpecial()
		p := &pipeline{s: c.s}
		p.begin(conn)
		p.add(c.s.sql.ownLease, func(func(...any) error) (bool, error) {
			found = true
			return true, nil
		}, me)
		p.add(c.s.sql.expired, func(scan func(...any) error) (bool, error) { return true, scan(&expired) }, c.now, me)
		p.add(c.s.sql.special, handlers.scan)
		p.add(c.s.sql.sequence, func(scan func(...any) error) (bool, error) { return true, scan(&last) })
		if several {
			p.add(c.s.sql.foreign, func(scan func(...any) error) (bool, error) {
				var l seenLane
				err := scan(&l.at.handler, &l.at.lane, &l.holder)
				foreign[l.at] = l.holder
				return true, err
			}, refs, me)
		}
		see := func(scan func(...any) error) (bool, error) {
			var l seenLane
			err := scan(&l.at.handler, &l.at.lane, &l.holder, &l.due, &l.event)
			lanes = append(lanes, l)
			return true, err
		}
		if from == nil {
			p.add(c.s.sql.discover, see, refs)
		} else {
			p.add(c.s.sql.discoverFrom, see, from.handlers, from.lanes, from.dues, from.events)
		}
		p.add(c.s.sql.running, func(scan func(...any) error) (bool, error) {
			var at slice
			err := scan(&at.handler, &at.lane)
			busy[at] = struct{}{}
			return true, err
		}, me, refs)
		p.commit()
		return p.run(ctx, conn)
	})
	if err != nil {
		return false, err
	}
	took := time.Since(began)
	c.expired = expired
	if me != 0 && !found {
		// Somebody took over from it.
		c.w.mu.Lock()
		c.w.forget()
		c.w.mu.Unlock()
	}
	again = c.learn(handlers)
	c.hold()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.seen, c.w.looked, c.w.claimed = true, c.now, 0
	c.w.sequence, c.w.appends = last, appends
	c.w.foreign = foreign
	c.w.see(refs, lanes, busy, mark)
	c.w.horizon.looked(refs, lanes, c.now, took)
	return again, nil
}

// see takes over what a look has found; the caller holds the mutex.
func (w *worker) see(refs []int32, lanes []seenLane, busy map[slice]struct{}, mark uint64) {
	looked := make(map[int32]struct{}, len(refs))
	for _, ref := range refs {
		looked[ref] = struct{}{}
	}
	for at, t := range w.todo {
		if _, ok := looked[at.handler]; ok && t.hinted <= mark && !w.horizon.hides(at, t.place) {
			delete(w.todo, at)
		}
	}
	for _, l := range lanes {
		if _, runs := busy[l.at]; runs && l.holder != w.owner {
			delete(w.owns, l.at)
			continue
		}
		t := w.todo[l.at]
		switch {
		case t == nil:
			t = &spot{place: l.place}
			w.todo[l.at] = t
		case l.before(t.place):
			t.place = l.place
		}
		t.holder = 0
		if l.holder == w.owner && w.owner != 0 {
			w.owns[l.at] = struct{}{}
			continue
		}
		t.holder = l.holder
		delete(w.owns, l.at)
	}
}

// special has the handlers that are paused or have several ids.
type special struct {
	ids    map[string]int32
	paused map[int32]bool
	groups map[int32]int32
}

func newSpecial() *special {
	return &special{ids: make(map[string]int32), paused: make(map[int32]bool), groups: make(map[int32]int32)}
}

func (h *special) scan(scan func(...any) error) (bool, error) {
	var ref, group int32
	var id string
	var paused bool
	if err := scan(&ref, &id, &group, &paused); err != nil {
		return false, err
	}
	h.ids[id] = ref
	if paused {
		h.paused[ref] = true
	}
	if group != 0 {
		h.groups[ref] = group
	}
	return true, nil
}

// learn takes over what is special, and reports whether the ids of a handler have
// changed.
func (c *claiming) learn(h *special) (changed bool) {
	for id, ref := range h.ids {
		if c.s.handlers.id(ref) == "" {
			c.s.handlers.add(id, ref) // Only another process has declared it.
		}
	}
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = !maps.Equal(w.groups, h.groups)
	w.paused, w.groups = h.paused, h.groups
	return changed
}
