package relaybus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/store/memstore"
	"github.com/relaybus-go/relaybus/transport"
	"github.com/relaybus-go/relaybus/transport/memtransport"
)

// routed is a bus with a route to a queue of a memory broker.
func routed(t *testing.T, broker *memtransport.Broker, options ...relaybus.HandlerOption) *bed {
	t.Helper()
	return newBed(t, func(c *relaybus.Config) {
		c.Transports = []transport.Transport{broker.Transport("mem")}
		c.Routes = []relaybus.Route{{Types: []string{"thing.*"}, Transport: "mem", Destination: "out", Options: options}}
	})
}

// A route is a durable handler: in order per key, with the event's own id.
func TestRoute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := memtransport.NewBroker()
		broker.Queue("out")
		b := routed(t, broker).start()
		b.publish(raw("e-1", relaybus.Key("k"), relaybus.CorrelationID("c"), relaybus.CausationID("u"), relaybus.Header("a", 1.5)), raw("e-2", relaybus.Key("k")), relaybus.Raw("other", json.RawMessage(`1`)))
		synctest.Wait()
		pass(10 * time.Millisecond)
		sent := broker.Sent("out")
		if len(sent) != 2 || sent[0].ID != "e-1" || sent[1].ID != "e-2" {
			t.Fatalf("sent %+v", sent)
		}
		m := sent[0]
		if m.Type != "thing.done" || m.Source != "relaybus" || m.Key != "k" || m.CorrelationID != "c" || m.CausationID != "u" || string(m.Payload) != `{}` || string(m.Headers) != `{"a":1.5}` || m.CreatedAt.IsZero() {
			t.Errorf("sent %+v", m)
		}
		if s := b.stats(); s.Completed != 2 {
			t.Errorf("statistics are %+v", s)
		}
		if list := b.Handlers(); len(list) != 1 || list[0].ID != "route.mem.out" || list[0].Origin != "Config.Routes[0]" {
			t.Errorf("handlers are %+v", list)
		}
	})
}

// F13: an outage spends no attempt; what can never be sent is dead at once;
// anything else is retried.
func TestRouteErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    func(*memtransport.Broker)
		attempts int
		status   relaybus.Status
	}{
		"down":          {(*memtransport.Broker).Down, 0, relaybus.StatusPending},
		"too large":     {func(b *memtransport.Broker) { b.SetMaxBytes(1) }, 1, relaybus.StatusDead},
		"refused":       {func(b *memtransport.Broker) { b.Refuse("out", transport.ErrRefused) }, 1, relaybus.StatusDead},
		"nacked":        {func(b *memtransport.Broker) { b.Refuse("out", transport.ErrNacked) }, 1, relaybus.StatusPending},
		"unroutable":    {func(b *memtransport.Broker) { b.Refuse("out", transport.ErrUnroutable) }, 1, relaybus.StatusPending},
		"lost confirm":  {func(b *memtransport.Broker) { b.LoseConfirms(1) }, 0, relaybus.StatusPending},
		"frozen":        {(*memtransport.Broker).Freeze, 0, relaybus.StatusPending},
		"held for long": {func(b *memtransport.Broker) { b.Hold("out") }, 0, relaybus.StatusPending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				broker := memtransport.NewBroker()
				broker.Queue("out")
				b := routed(t, broker, relaybus.Timeout(10*time.Second)).start()
				c.fault(broker)
				b.publish(raw("e-1"))
				synctest.Wait()
				if name == "frozen" || name == "held for long" {
					pass(10500 * time.Millisecond)
				}
				synctest.Wait()
				if d := b.only(relaybus.Filter{}); d.Status != c.status || d.Attempts != c.attempts {
					t.Errorf("delivery is %+v", d)
				}
				if name == "down" {
					if err := b.Ready(); !errors.Is(err, transport.ErrUnavailable) {
						t.Errorf("Ready: %v", err)
					}
				}
				broker.Heal()
				broker.Up()
				pass(2 * time.Minute)
				synctest.Wait()
				want := relaybus.StatusCompleted
				if c.status == relaybus.StatusDead {
					want = relaybus.StatusDead
				}
				if d := b.only(relaybus.Filter{}); d.Status != want {
					t.Errorf("in the end the delivery is %+v", d)
				}
				for _, m := range broker.Sent("out") {
					if m.ID != "e-1" {
						t.Errorf("sent %+v", m)
					}
				}
			})
		})
	}
}

// receiving is a bus with a subscription to a queue.
func receiving(t *testing.T, broker *memtransport.Broker, handlers ...relaybus.Handler) *bed {
	t.Helper()
	return newBed(t, func(c *relaybus.Config) {
		c.Transports = []transport.Transport{broker.Transport("mem")}
		c.Subscriptions = []relaybus.Subscription{{ID: "in", Transport: "mem", Source: "in", DeadLetter: "bad", InFlight: 4}}
		c.EventTypes = []relaybus.AnyEventType{relaybus.Define[json.RawMessage]("thing.done")}
	}, handlers...)
}

func send(t *testing.T, broker *memtransport.Broker, messages ...transport.Message) {
	t.Helper()
	for _, m := range messages {
		if err := broker.Put("in", m); err != nil {
			t.Fatal(err)
		}
	}
}

// A message becomes an event in one transaction; one that comes again is known.
func TestSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := memtransport.NewBroker()
		broker.Queue("in")
		broker.Queue("bad")
		var got []*relaybus.RawEvent
		receiving(t, broker, things("h", func(_ context.Context, e *relaybus.RawEvent) error {
			got = append(got, e)
			return nil
		})).start()
		at := time.Date(2020, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
		m := transport.Message{
			ID: "e-1", Type: "thing.done", Source: "elsewhere", Key: "k", CorrelationID: "c", CausationID: "u",
			CreatedAt: at, Payload: []byte(`{"n":12345678901234567890}`), Headers: []byte(`{"a":1}`),
		}
		send(t, broker, m, m, m)
		pass(time.Second)
		synctest.Wait()
		if len(got) != 1 {
			t.Fatalf("handled %d times", len(got))
		}
		e := got[0]
		if e.ID != "e-1" || e.Source != "elsewhere" || e.Key != "k" || e.CorrelationID != "c" || e.CausationID != "u" || !e.CreatedAt.Equal(at.Truncate(time.Millisecond)) ||
			string(e.Payload) != `{"n":12345678901234567890}` || string(e.Headers.JSON()) != `{"a":1}` {
			t.Errorf("event is %+v", e)
		}
		if n := broker.Depth("in"); n != 0 {
			t.Errorf("%d are not acknowledged", n)
		}
	})
}

// F14: garbage is rejected with a reason, and holds nobody up; it is never
// rejected because our own store is down.
func TestSubscriptionGarbage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := memtransport.NewBroker()
		broker.Queue("in")
		broker.Queue("bad")
		var ran trail
		b := receiving(t, broker, things("h", ran.handle)).start()
		good := transport.Message{ID: "good", Type: "thing.done", Payload: []byte(`1`)}
		var list []transport.Message
		for i, change := range []func(*transport.Message){
			func(m *transport.Message) { m.Payload = nil },
			func(m *transport.Message) { m.Payload = []byte(`{`) },
			func(m *transport.Message) { m.Payload = []byte("\xff") },
			func(m *transport.Message) { m.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`) },
			func(m *transport.Message) { m.Type = "unknown" },
			func(m *transport.Message) { m.Type = "" },
			func(m *transport.Message) { m.ID = strings.Repeat("x", 300) },
			func(m *transport.Message) { m.Key = strings.Repeat("x", 300) },
			func(m *transport.Message) { m.CorrelationID = "\x00" },
			func(m *transport.Message) { m.Headers = []byte(`[]`) },
		} {
			m := good
			m.ID = fmt.Sprint("bad-", i)
			change(&m)
			list = append(list, m)
		}
		list = append(list, good)
		send(t, broker, list...)
		pass(time.Second)
		synctest.Wait()
		if got := ran.took(); !slices.Equal(got, []string{"good"}) {
			t.Errorf("handled %q", got)
		}
		if n := len(broker.Rejected("in")); n != 10 {
			t.Errorf("%d are rejected, want 10", n)
		}
		for _, r := range broker.Rejected("in") {
			if r.Reason == "" || strings.Contains(r.Reason, "xxx") {
				t.Errorf("reason %q", r.Reason)
			}
		}
		b.store.failBefore(opTransact, times(5, unavailable()))
		later := good
		later.ID = "later"
		send(t, broker, later)
		pass(time.Minute)
		synctest.Wait()
		if got := ran.took(); !slices.Equal(got, []string{"later"}) || len(broker.Rejected("in")) != 10 {
			t.Errorf("handled %q, %d rejected", got, len(broker.Rejected("in")))
		}
	})
}

// A source of an invalid name is not the message's fault, and a hook that
// panics, or an id generator, not the process's end.
func TestSubscriptionOddSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := memtransport.NewBroker()
		broker.Queue("in")
		broker.Queue("bad")
		var source string
		receiving(t, broker, things("h", func(_ context.Context, e *relaybus.RawEvent) error {
			source = e.Source
			return nil
		})).start()
		send(t, broker, transport.Message{ID: "e-1", Type: "thing.done", Source: "\x00", Payload: []byte(`1`)})
		pass(time.Second)
		synctest.Wait()
		if source != "relaybus" {
			t.Errorf("source is %q", source)
		}
	})
}

// From one service to another through a broker: linked, in order.
func TestRouteToSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := memtransport.NewBroker()
		broker.Queue("out")
		a := routed(t, broker).start()
		log := newOrderLog(t)
		newBed(t, func(c *relaybus.Config) {
			c.Transports = []transport.Transport{broker.Transport("mem")}
			c.Subscriptions = []relaybus.Subscription{{ID: "in", Transport: "mem", Source: "out", InFlight: 10}}
		}, things("h", func(_ context.Context, e *relaybus.RawEvent) error {
			log.enter(e)
			defer log.leave(e)
			return nil
		})).start()
		for i := range 10 {
			a.publish(many5(i)...)
		}
		pass(time.Minute)
		log.check(10)
	})
}

func many5(i int) []relaybus.Message {
	var list []relaybus.Message
	for k := range 5 {
		list = append(list, raw(fmt.Sprint(i, "-", k), relaybus.Key(fmt.Sprint("k-", k))))
	}
	return list
}

// What is wrong with routes and subscriptions is said at once.
func TestRoutesAreChecked(t *testing.T) {
	t.Parallel()
	broker := memtransport.NewBroker()
	cfg := quiet()
	cfg.Transports = []transport.Transport{broker.Transport("mem"), broker.Transport("mem"), bare{}}
	cfg.Routes = []relaybus.Route{
		{Types: []string{"a"}, Transport: "none", Destination: "out"},
		{Types: []string{"a"}, Transport: "mem"},
		{Types: []string{"a"}, Transport: "bare", Destination: "out"},
		{Types: []string{"a"}, Transport: "mem", Destination: "x", Timeout: -1},
		{Types: []string{"a"}, Transport: "mem", Destination: "tx", Options: []relaybus.HandlerOption{relaybus.Transactional()}},
	}
	cfg.Subscriptions = []relaybus.Subscription{
		{ID: "s", Transport: "none", Source: "in"},
		{ID: "s", Transport: "none", Source: "in"},
		{ID: "r", Transport: "bare", Source: "in"},
		{Transport: "mem", InFlight: -1},
	}
	_, err := relaybus.New(memstore.New(memstore.Config{}), cfg)
	if !errors.Is(err, relaybus.ErrConfiguration) {
		t.Fatalf("New: %v", err)
	}
	for _, text := range []string{
		`Transports[1]`, `Routes[0]: Transport "none"`, `Routes[1]: Destination`, `Routes[2]: Transport "bare" can't send`, `Routes[3]: Timeout`, `Routes[4]: a route can't be transactional`,
		`Subscriptions[0]: Transport "none"`, `Subscriptions[1]: the ID "s"`, `Subscriptions[2]: Transport "bare" can't receive`, `Subscriptions[3]`,
	} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in %v", text, err)
		}
	}
	cfg = quiet()
	cfg.Transports = []transport.Transport{broker.Transport("mem")}
	cfg.Routes = []relaybus.Route{{Transport: "mem", Destination: "out"}}
	if _, err := relaybus.New(memstore.New(memstore.Config{}), cfg); !errors.Is(err, relaybus.ErrConfiguration) || !strings.Contains(err.Error(), "takes no event type") {
		t.Errorf("a route without types: %v", err)
	}
}

// bare is a transport that neither sends nor receives.
type bare struct{}

func (bare) Name() string                  { return "bare" }
func (bare) Connect(context.Context) error { return errBoom }
func (bare) Close(context.Context) error   { return errBoom }
func (bare) Ready() error                  { return nil }
func (bare) Features() transport.Features  { return transport.Features{} }

// B15: a start that fails at a transport takes the others down again.
func TestStartFailsAtTransport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := memtransport.NewBroker()
		broker.Queue("out")
		first := broker.Transport("mem")
		b := newBed(t, func(c *relaybus.Config) { c.Transports = []transport.Transport{first, bare{}} }, things("h", ignore))
		if err := b.Start(t.Context()); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "connect transport bare") {
			t.Errorf("Start: %v", err)
		}
		if err := first.Ready(); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("the first transport: %v", err)
		}
		missing := routed(t, memtransport.NewBroker())
		if err := missing.Start(t.Context()); !errors.Is(err, transport.ErrConfiguration) || !strings.Contains(err.Error(), `"out"`) {
			t.Errorf("Start without the destination: %v", err)
		}
	})
}

// A stop does not wait for ever for a message that is being received.
func TestStopWhileReceiving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := memtransport.NewBroker()
		broker.Queue("in")
		broker.Queue("bad")
		b := receiving(t, broker, things("h", ignore))
		b.store.failBefore(opTransact, func(ctx context.Context) error { <-ctx.Done(); return unavailable() })
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(t, broker, transport.Message{ID: "e-1", Type: "thing.done", Payload: []byte(`1`)})
		synctest.Wait()
		began := time.Now()
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("Stop took %v", took)
		}
		if n := broker.Depth("in"); n != 1 {
			t.Errorf("%d messages are left, want the one", n)
		}
	})
}
