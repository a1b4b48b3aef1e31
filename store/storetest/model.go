package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// SeedVariable is the environment variable that replays one seed of
// [RunModel]; see there.
const SeedVariable = "RELAYBUS_STORETEST_SEED"

// RunModel plays random operations on two stores side by side, and compares
// what can be seen of them after every step. The reference is usually the
// memory store. A failure prints the seed and the last operations; with the
// environment variable [SeedVariable] set to that seed the same run is played
// again, whatever seed the test asks for.
//
// Where the contract leaves a choice, the model takes it away: claims have
// limits that nothing reaches, and the workers of a group always claim one after
// the other, so that what they get together is not a matter of lanes. Which of
// them got a delivery may differ, and the model keeps it for each store.
func RunModel(t *testing.T, reference, other Backend, seed uint64, steps int) {
	t.Helper()
	if text := os.Getenv(SeedVariable); text != "" {
		parsed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is no seed: %v", SeedVariable, err)
		}
		seed = parsed
	}
	m := newModel(t, reference, other, seed)
	for m.step = range steps {
		m.play()
		m.compare()
	}
	m.drain()
	t.Logf("seed %d: %d steps, %d events, %d claims of deliveries", seed, steps, len(m.ids), m.claimed)
}

// modelLease is the lease of the model's workers.
const modelLease = 30 * time.Minute

// model is the state that both stores share: what is known by what was done.
type model struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	now     time.Time
	step    int
	twins   [2]*twin
	groups  []*group
	ids     []string // of all events that were ever published
	keys    []string
	stale   []store.DeliveryID
	log     []string
	claimed int
}

// twin is one of the two stores.
type twin struct {
	name   string
	stores []store.Store
	// held has what runs, and under which claim; stale has leases that ended.
	held  map[store.DeliveryID]holding
	stale map[store.DeliveryID]holding
}

func (w *twin) s() store.Store { return w.stores[0] }

type holding struct {
	claimed store.Claimed
	owner   string
	on      store.Store
}

// group is a number of workers with the same handlers, and no other group has
// those.
type group struct {
	workers  []string
	handlers []store.Handler
	life     int // grows when the workers die
}

func (g *group) owner(i int) string { return fmt.Sprintf("%s.%d", g.workers[i], g.life) }

func newModel(t *testing.T, reference, other Backend, seed uint64) *model {
	t.Helper()
	m := &model{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0x5eed)), now: epoch(),
		groups: []*group{
			{workers: []string{"a", "b"}, handlers: []store.Handler{{ID: "h1"}, {ID: "h2"}}},
			{workers: []string{"c"}, handlers: []store.Handler{{ID: "new3", Aliases: []string{"old3"}}}},
		},
		keys: []string{"", "", "k1", "k2", "k3", "hot"},
	}
	backends := []Backend{reference, other}
	history := seed%2 == 0
	for i, backend := range backends {
		db := backend.New(t)
		w := &twin{name: backend.Name, held: make(map[store.DeliveryID]holding), stale: make(map[store.DeliveryID]holding)}
		for range 2 {
			w.stores = append(w.stores, db.Open(t, Options{History: history}))
		}
		if err := w.s().Setup(t.Context()); err != nil {
			t.Fatalf("%s: setup: %v", w.name, err)
		}
		m.twins[i] = w
	}
	m.each("record", func(w *twin) string {
		return outcomeOf(w.s().RecordHandlers(t.Context(), []store.HandlerEntry{entry("h1", nil), entry("h2", nil)}, m.now))
	})
	return m
}

// note remembers an operation for the report of a failure.
func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%d %s: ", m.step, m.now.Format("15:04:05.000"))+fmt.Sprintf(format, args...))
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	for _, line := range m.log[max(0, len(m.log)-30):] {
		m.t.Log(line)
	}
	m.t.Fatalf("seed %d, step %d: %s", m.seed, m.step, fmt.Sprintf(format, args...))
}

// each runs an operation on both stores, and wants the same description of what
// came of it.
func (m *model) each(name string, f func(w *twin) string) {
	m.t.Helper()
	first, second := f(m.twins[0]), f(m.twins[1])
	if first != second {
		m.fail("%s differs:\n%s: %s\n%s: %s", name, m.twins[0].name, first, m.twins[1].name, second)
	}
}

// outcomeOf describes an error by its classes.
func outcomeOf(err error) string {
	if err == nil {
		return "done"
	}
	if problem := errorProblem(err); problem != "" {
		return problem
	}
	var classes []string
	for _, class := range []error{
		store.ErrConfiguration, store.ErrUnavailable, store.ErrConflict, store.ErrTimeout, store.ErrOutcomeUnknown, store.ErrTxDone,
		store.ErrForeignTx, store.ErrLeaseLost, store.ErrInvalidToken, store.ErrNotFound, store.ErrRunning, store.ErrState,
		store.ErrInvalidArgument, store.ErrClosed,
	} {
		if isOneOf(err, class) {
			classes = append(classes, class.Error())
		}
	}
	return strings.Join(classes, "; ")
}

// running returns what runs, in a fixed order. Both stores agree on it.
func (m *model) running() []store.DeliveryID {
	return slices.SortedFunc(maps.Keys(m.twins[0].held), compareIDs)
}

func compareIDs(a, b store.DeliveryID) int {
	if a.EventID != b.EventID {
		if a.EventID < b.EventID {
			return -1
		}
		return 1
	}
	if a.Handler < b.Handler {
		return -1
	}
	if a.Handler > b.Handler {
		return 1
	}
	return 0
}

// some returns up to n of the list, at random.
func (m *model) some(list []store.DeliveryID, n int) []store.DeliveryID {
	list = slices.Clone(list)
	m.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}

// end forgets a claim that has ended, and keeps its lease as a stale one.
func (m *model) end(id store.DeliveryID) {
	for _, w := range m.twins {
		w.stale[id] = w.held[id]
		delete(w.held, id)
	}
	if !slices.Contains(m.stale, id) {
		m.stale = append(m.stale, id)
	}
}

// groupOf returns the group whose worker runs the handler.
func (m *model) groupOf(handler string) *group {
	for _, g := range m.groups {
		for _, h := range g.handlers {
			if h.ID == handler || slices.Contains(h.Aliases, handler) {
				return g
			}
		}
	}
	return nil
}

// drain lets everything end, and wants nothing left but the dead, the paused
// and what nobody handles.
func (m *model) drain() {
	m.t.Helper()
	for _, h := range []string{"h1", "h2"} {
		m.each("resume", func(w *twin) string { return outcomeOf(w.s().PauseHandler(m.t.Context(), h, false, m.now)) })
	}
	m.jump(time.Hour)
	for range 10_000 {
		before := m.claimed
		for _, g := range m.groups {
			m.claim(g)
		}
		if len(m.running()) == 0 && m.claimed == before {
			break
		}
		m.settleAll(m.running(), func(store.DeliveryID) store.Settlement { return store.Settlement{Action: store.Complete} })
		m.compareStats()
	}
	m.compare()
	for _, d := range m.list(m.twins[0]) {
		if d.Status != store.StatusPending {
			continue
		}
		if m.groupOf(d.ID.Handler) != nil && !m.heldKey(d) {
			m.fail("%v is pending at the end, and nothing holds its key: %+v", d.ID, d)
		}
	}
}

// heldKey reports whether a dead delivery holds the key of the delivery.
func (m *model) heldKey(d store.Delivery) bool {
	if d.Event.Key == "" {
		return false
	}
	for _, other := range m.list(m.twins[0]) {
		if other.HoldsKey && other.Event.Key == d.Event.Key && sameSet(other.ID.Handler, d.ID.Handler) {
			return true
		}
	}
	return false
}

// sameSet reports whether the handlers are the same one, renamed or not.
func sameSet(a, b string) bool {
	if a == b {
		return true
	}
	set := []string{"new3", "old3"}
	return slices.Contains(set, a) && slices.Contains(set, b)
}
