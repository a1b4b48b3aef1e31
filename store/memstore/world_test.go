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

// move is something that may happen next.
type move struct {
	name string
	do   func() error
}

func (w *world) moves() []move {
	var list []move
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		for _, p := range n.processes {
			if !p.ready() {
				continue
			}
			name := n.name + " " + p.Label()
			list = append(list, move{name, func() error { return w.run(p) }})
			if w.losses > 0 && (p.Label() == "recorded" || p.Label() == "settled") {
				list = append(list, move{name + ", its reply lost", func() error {
					w.losses--
					w.lose = true
					return w.run(p)
				}})
			}
		}
		if w.crashes > 0 && !n.idle() {
			list = append(list, move{n.name + " crashes", func() error {
				w.crashes--
				n.crash()
				return w.verify("crash", w.last)
			}})
		}
	}
	if w.ticks > 0 {
		list = append(list, move{"tick", func() error {
			w.ticks--
			w.clock += checkTick
			return w.verify("tick", w.last)
		}})
	}
	for i, a := range w.scenario.acts {
		if !w.acted[i] && a.possible(w) {
			list = append(list, move{a.name, func() error { return w.act(i) }})
		}
	}
	return list
}

// Choices names what may happen next.
func (w *world) Choices() []string {
	var names []string
	for _, c := range w.moves() {
		names = append(names, c.name)
	}
	return names
}

// Do lets choice i happen, and checks what it changed.
func (w *world) Do(i int, replayed bool) error {
	w.replayed = replayed
	if err := w.moves()[i].do(); err != nil {
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
