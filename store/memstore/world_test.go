package memstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relaybus-go/relaybus/internal/explore"
	"github.com/relaybus-go/relaybus/store"
)

// world is one execution of a scenario.
type world struct {
	scenario scenario
	ctx      context.Context //nolint:containedctx // the processes of the check are its methods
	db       *database
	outsider *Store
	nodes    []*node
	clock    time.Duration
	ticks    int
	crashes  int
	losses   int
	acted    []bool
	// current is the process that runs, lose says that its reply gets lost, and
	// free that processes run through.
	current  *process
	lose     bool
	free     bool
	replayed bool

	last      facts
	published map[store.DeliveryID]string // with the key
	completed map[store.DeliveryID]int
	effects   map[store.DeliveryID]int
	tokens    map[string]bool
	epochs    map[int64]int64
	failure   error
}

// process is a process of the world and what it carries from step to step.
type process struct {
	*explore.Process
	node  *node
	step  func(string)
	local any
}

func openWorld(ctx context.Context, sc scenario) *world {
	s := New(Config{})
	w := &world{
		scenario:  sc,
		ctx:       ctx,
		db:        s.db,
		outsider:  s,
		ticks:     sc.ticks,
		crashes:   sc.crashes,
		losses:    sc.losses,
		acted:     make([]bool, len(sc.acts)),
		published: make(map[store.DeliveryID]string),
		completed: make(map[store.DeliveryID]int),
		effects:   make(map[store.DeliveryID]int),
		tokens:    make(map[string]bool),
		epochs:    make(map[int64]int64),
	}
	if sc.plant != nil {
		sc.plant(&s.hooks)
	}
	w.fail(w.publish(s, sc.before))
	for i, claims := range sc.claims {
		w.nodes = append(w.nodes, newNode(w, string(rune('A'+i)), claims))
	}
	w.last = w.facts()
	return w
}

func (w *world) now() time.Time { return checkStart().Add(w.clock) }

// fail notes the first violation that a process meets.
func (w *world) fail(err error) {
	if w.failure == nil {
		w.failure = err
	}
}

func (w *world) failf(format string, args ...any) { w.fail(fmt.Errorf(format, args...)) }

func (w *world) publish(s *Store, events []store.NewEvent) error {
	err := s.Transact(w.ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
		_, err := s.Append(ctx, tx, events, w.now())
		return err
	})
	for _, e := range events {
		for _, h := range e.Handlers {
			w.published[store.DeliveryID{EventID: e.ID, Handler: h.ID}] = e.Key
		}
	}
	return err
}

// pause is the hook of the store: the process stops there.
func (w *world) pause(name string, local any) error {
	if w.free || w.current == nil {
		return nil
	}
	p := w.current
	if w.scenario.stops(name) {
		p.local = local
		p.step(name)
	}
	if name == "read" {
		p.node.reads(local.(*claim)) //nolint:errcheck,forcetypeassert // a test fails by the panic
	}
	if w.lose {
		w.lose = false
		return errors.New("the reply got lost")
	}
	return nil
}

// move is something that may happen next: a step of a process, with or without
// its reply, the crash of a node, an act, or, when all is zero, a tick.
type move struct {
	process *process
	lost    bool
	crash   *node
	act     int // its index, from 1
}

func (w *world) moves() []move {
	list := make([]move, 0, 8)
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		for _, p := range n.processes {
			if !p.ready() {
				continue
			}
			list = append(list, move{process: p})
			if w.losses > 0 && (p.Label() == "recorded" || p.Label() == "settled") {
				list = append(list, move{process: p, lost: true})
			}
		}
		if w.crashes > 0 && !n.idle() {
			list = append(list, move{crash: n})
		}
	}
	if w.ticks > 0 {
		list = append(list, move{})
	}
	for i, a := range w.scenario.acts {
		if !w.acted[i] && a.possible(w) {
			list = append(list, move{act: i + 1})
		}
	}
	return list
}

// name describes a move.
func (w *world) name(m move) string {
	switch {
	case m.lost:
		return m.process.node.name + " " + m.process.Label() + ", its reply lost"
	case m.process != nil:
		return m.process.node.name + " " + m.process.Label()
	case m.crash != nil:
		return m.crash.name + " crashes"
	case m.act > 0:
		return w.scenario.acts[m.act-1].name
	default:
		return "tick"
	}
}

// do lets a move happen.
func (w *world) do(m move) error {
	switch {
	case m.process != nil:
		if m.lost {
			w.losses--
			w.lose = true
		}
		return w.run(m.process)
	case m.crash != nil:
		w.crashes--
		m.crash.crash()
		return w.verify("crash", w.last)
	case m.act > 0:
		return w.act(m.act - 1)
	default:
		w.ticks--
		w.clock += checkTick
		return w.verify("tick", w.last)
	}
}

// Choices names what may happen next.
func (w *world) Choices() []string {
	var names []string
	for _, m := range w.moves() {
		names = append(names, w.name(m))
	}
	return names
}

// Do lets choice i happen, and checks what it changed.
func (w *world) Do(i int, replayed bool) error {
	w.replayed = replayed
	if err := w.do(w.moves()[i]); err != nil {
		return err
	}
	for _, n := range w.nodes {
		if p := n.processes[1]; !n.dead && p.Label() == "work" && len(n.jobs) > 0 {
			// It goes on to the next step that another process can notice.
			w.current = p
			p.Resume()
			w.current = nil
		}
	}
	return w.failure
}

// run lets a process do the step before which it stands.
func (w *world) run(p *process) error {
	label := p.Label()
	expected := w.expect(p)
	w.current = p
	p.Resume()
	w.current = nil
	if label == "record" {
		return w.verifyRecord(p, expected)
	}
	step := p.node.name + " " + label
	if label == "settle" {
		step = "I5: " + step
	}
	return w.verify(step, expected)
}

func (w *world) act(i int) error {
	a := w.scenario.acts[i]
	w.acted[i] = true
	expected := w.last.clone()
	a.spec(w, expected.rows)
	if err := a.do(w); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	return w.verify(a.name, expected)
}

// Close ends the processes.
func (w *world) Close() {
	for _, n := range w.nodes {
		n.crash()
	}
}
