package memstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/relaybus-go/relaybus/internal/explore"
	"github.com/relaybus-go/relaybus/store"
)

// node is a worker process: one goroutine claims, another one works.
type node struct {
	name      string
	world     *world
	store     *Store
	processes []*process
	claims    int
	leaving   bool
	dead      bool
	jobs      []*job
	// readable is what was claimable, and next what was to become due, when the
	// claim last read; disturbed says that a settlement of this node was under
	// way meanwhile.
	readable  []store.DeliveryID
	next      int64
	disturbed bool
}

// job is a delivery that was handed to a node.
type job struct {
	claimed store.Claimed
	owner   int64
	// valid says whether the lease held when the last settlement was tried.
	valid bool
}

func (j *job) id() store.DeliveryID {
	return store.DeliveryID{EventID: j.claimed.Lease.EventID, Handler: j.claimed.Lease.Handler}
}

func newNode(w *world, name string, claims int) *node {
	n := &node{name: name, world: w, store: w.outsider.Instance(), claims: claims}
	n.leaving = w.scenario.leaves && len(w.nodes) == 0
	n.store.hooks = w.outsider.hooks
	n.store.hooks.step = w.pause
	n.start(n.claim)
	n.start(n.work)
	return n
}

func (n *node) start(body func(p *process)) {
	p := &process{node: n}
	n.processes = append(n.processes, p)
	p.Process = explore.Start(func(step func(string)) {
		p.step = func(name string) {
			step(name)
		}
		body(p)
	})
}

// ready says that the process can go on: a worker without jobs waits.
func (p *process) ready() bool { return !p.Done() && p.Label() != "work" }

// idle says that nothing is left to do for the node.
func (n *node) idle() bool { return !slices.ContainsFunc(n.processes, (*process).ready) }

func (n *node) crash() {
	for _, p := range n.processes {
		p.Stop()
		p.local = nil
	}
	n.dead = true
	n.jobs = nil
}

// claim is the process that claims.
func (n *node) claim(p *process) {
	for n.claims > 0 {
		p.step("claim")
		n.claims--
		p.local = nil
		n.claimOnce()
	}
	if n.leaving {
		p.step("leave")
		n.leaving = false
		n.world.fail(n.store.Relinquish(n.world.ctx, n.name, n.world.now()))
	}
}

func (n *node) claimOnce() int {
	w := n.world
	r := store.ClaimRequest{Owner: n.name, Limit: w.scenario.limit, Now: w.now(), Lease: checkLease}
	for _, h := range w.scenario.handlers {
		r.Handlers = append(r.Handlers, store.HandlerLimit{Handler: h, Limit: w.scenario.limit})
	}
	result, err := n.store.Claim(w.ctx, r)
	if err != nil {
		if !errors.Is(err, store.ErrLeaseLost) && !errors.Is(err, store.ErrOutcomeUnknown) {
			w.failf("%s: claim: %w", n.name, err)
		}
		return 0
	}
	for _, c := range result.Deliveries {
		n.begin(c)
	}
	if len(result.Deliveries) == 0 && !result.More && len(n.readable) > 0 && !n.disturbed && !w.free {
		w.failf("%s: an empty claim, although %v could be claimed when it read", n.name, n.readable)
	}
	if got := nextDue(result); got != n.next && !w.free {
		w.failf("%s: the claim says that more is due at %d, want %d", n.name, got, n.next)
	}
	return len(result.Deliveries)
}

func nextDue(r store.ClaimResult) int64 {
	if r.NextDue.IsZero() {
		return never
	}
	return millis(r.NextDue)
}

// begin starts an execution.
func (n *node) begin(c store.Claimed) {
	w := n.world
	j := &job{claimed: c, owner: n.store.worker(n.name).current().number}
	id := j.id()
	if _, ok := w.published[id]; !ok {
		w.failf("I2: %s runs %v, which was never committed", n.name, id)
	}
	token := fmt.Sprintf("%v %d", id, c.Lease.Token.Claims)
	if w.tokens[token] {
		w.failf("I3: %s runs %v again in claim generation %d", n.name, id, c.Lease.Token.Claims)
	}
	w.tokens[token] = true
	now := w.facts()
	if r, ok := now.rows[id]; ok && r.owner == j.owner && c.Attempt != r.attempts+1 {
		w.failf("%s runs %v as attempt %d after %d", n.name, id, c.Attempt, r.attempts)
	}
	for _, other := range w.nodes {
		for _, o := range other.jobs {
			same := o.id() == id || (c.Event.Key != "" && o.claimed.Event.Key == c.Event.Key)
			if same && now.valid(j) && now.valid(o) {
				w.failf("I4: %s runs %v beside %v, which %s runs under a lease that holds", n.name, id, o.id(), other.name)
			}
		}
	}
	n.jobs = append(n.jobs, j)
}

// work is the process that runs deliveries.
func (n *node) work(p *process) {
	for {
		p.step("work")
		n.finish(p, n.jobs[0])
		n.jobs = n.jobs[1:]
	}
}

// finish ends one execution as the scenario wants. The process stands before a
// step that does nothing yet.
func (n *node) finish(p *process, j *job) {
	w := n.world
	end := ending{action: store.Complete}
	if w.scenario.outcome != nil {
		end = w.scenario.outcome(j.claimed.Event.ID, j.claimed.Attempt)
	}
	if end.extend {
		p.local = j
		p.step("extend")
		holds, err := n.store.Extend(w.ctx, n.name, []store.Lease{j.claimed.Lease}, w.now(), checkLease)
		if err != nil || holds[0] != j.valid {
			w.failf("I5: %s: renewal of %v: %v, %w, want %t", n.name, j.id(), holds, err, j.valid)
		}
	}
	if end.inTx {
		n.complete(p, j)
		return
	}
	one := store.Settlement{Lease: j.claimed.Lease, Action: end.action, Hold: end.hold, DueAt: w.now().Add(end.delay)}
	n.settle(p, j, one)
	if end.again {
		one.Action = store.Complete
		n.settle(p, j, one)
	}
}

// settle ends a claim, again if its reply gets lost.
func (n *node) settle(p *process, j *job, one store.Settlement) {
	w := n.world
	for {
		p.local = settling{j, one}
		p.step("settle")
		want := j.valid
		ok, err := n.store.Settle(w.ctx, n.name, []store.Settlement{one}, w.now())
		switch {
		case errors.Is(err, store.ErrOutcomeUnknown):
			continue
		case err != nil:
			w.failf("%s: settle: %w", n.name, err)
		case ok[0] != want:
			w.failf("I5: %s: %v of %v gave %t, want %t", n.name, one.Action, j.id(), ok[0], want)
		}
		return
	}
}

// settling is what a process carries that stands before a settlement.
type settling struct {
	job *job
	one store.Settlement
}

// complete completes in a transaction.
func (n *node) complete(p *process, j *job) {
	w := n.world
	tx := n.store.Begin()
	tx.OnCommit(func() { w.effects[j.id()]++ })
	if err := n.store.CompleteTx(w.ctx, tx, n.name, j.claimed.Lease, w.now()); err != nil {
		if !errors.Is(err, store.ErrLeaseLost) {
			w.failf("%s: complete in transaction: %w", n.name, err)
		}
		if w.facts().valid(j) {
			w.failf("I5: %s: the lease of %v is called lost, but holds", n.name, j.id())
		}
		w.fail(tx.Rollback())
		return
	}
	p.local = settling{j, store.Settlement{Lease: j.claimed.Lease, Action: store.Complete}}
	p.step("settle")
	want := j.valid
	if err := tx.Commit(w.ctx); errors.Is(err, store.ErrLeaseLost) == want || (want && err != nil) {
		w.failf("I5: %s: commit with %v: %w, want success %t", n.name, j.id(), err, want)
	}
}
