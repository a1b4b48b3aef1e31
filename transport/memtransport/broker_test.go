package memtransport_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/relaybus-go/relaybus/transport"
	"github.com/relaybus-go/relaybus/transport/memtransport"
)

// log records the ids that a subscription received.
type log struct {
	mu  sync.Mutex
	ids []string
}

func (l *log) receive(_ context.Context, in transport.Inbound) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, in.ID)
	return nil
}

func TestTopicGivesEachSubscriptionEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memtransport.NewBroker()
		b.Topic("topic")
		one, two := join(t, b), join(t, b)
		send(t, one, "topic", "a", "k")
		var early, late log
		subscribe(t, one, "early", "topic", early.receive)
		subscribe(t, two, "early", "topic", early.receive)
		send(t, one, "topic", "b", "k")
		synctest.Wait()
		subscribe(t, two, "late", "topic", late.receive)
		synctest.Wait()
		want := []string{"a", "b"}
		if !slices.Equal(early.ids, want) || !slices.Equal(late.ids, want) {
			t.Errorf("received %v and %v, want %v each", early.ids, late.ids, want)
		}
	})
}

func TestQueueIsSharedBySubscriptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, one := connect(t, "q")
		var all log
		subscribe(t, one, "a", "q", all.receive)
		subscribe(t, join(t, b), "b", "q", all.receive)
		for range 20 {
			send(t, one, "q", "m", "")
		}
		synctest.Wait()
		if len(all.ids) != 20 || b.Depth("q") != 0 {
			t.Errorf("received %d messages of 20, %d are left", len(all.ids), b.Depth("q"))
		}
	})
}

// A message that fails holds the others of its key, and nobody else.
func TestFailedMessageHoldsItsKeyOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "q")
		var done log
		subscribe(t, tr, "s", "q", func(ctx context.Context, in transport.Inbound) error {
			if in.ID == "a1" {
				return errors.New("not now")
			}
			return done.receive(ctx, in)
		})
		send(t, tr, "q", "a1", "a")
		send(t, tr, "q", "a2", "a")
		send(t, tr, "q", "b1", "b")
		send(t, tr, "q", "b2", "b")
		send(t, tr, "q", "c", "")
		synctest.Wait()
		slices.Sort(done.ids)
		if want := []string{"b1", "b2", "c"}; !slices.Equal(done.ids, want) {
			t.Errorf("received %v, want %v", done.ids, want)
		}
		if b.Depth("q") != 2 {
			t.Errorf("%d messages are left, want 2", b.Depth("q"))
		}
	})
}

func TestRejectedAreListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "q")
		subscribe(t, tr, "s", "q", func(context.Context, transport.Inbound) error {
			return transport.NewError("check message", transport.ErrReject, "no good", nil)
		})
		send(t, tr, "q", "a", "")
		if err := b.PutRaw("q", []byte("{")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		rejected := b.Rejected("q")
		if len(rejected) != 2 || b.Depth("q") != 0 {
			t.Fatalf("rejected %+v, %d are left", rejected, b.Depth("q"))
		}
		i := slices.IndexFunc(rejected, func(r memtransport.Rejected) bool { return r.Inbound.Malformed != nil })
		if i < 0 || string(rejected[i].Inbound.Raw) != "{" {
			t.Errorf("the body that is no event is not there: %+v", rejected)
		}
		for _, r := range rejected {
			if r.Subscription != "s" || !strings.Contains(r.Reason, "no good") {
				t.Errorf("got %+v", r)
			}
		}
	})
}

// Without its dead letter destination a rejected message would be lost.
func TestRejectedWaitsForItsDeadLetterDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "q", "dead")
		again := make(chan struct{})
		_, err := tr.Subscribe(t.Context(), transport.Subscription{
			ID: "s", Source: "q", DeadLetter: "dead",
			Receive: func(context.Context, transport.Inbound) error { return transport.ErrReject },
			Backoff: func(ctx context.Context, _ int) error {
				select {
				case <-again:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Remove("dead")
		send(t, tr, "q", "a", "")
		synctest.Wait()
		if b.Depth("q") != 1 || len(b.Rejected("q")) != 0 {
			t.Fatalf("%d are left, rejected %v", b.Depth("q"), b.Rejected("q"))
		}
		b.Queue("dead")
		again <- struct{}{}
		synctest.Wait()
		if b.Depth("q") != 0 || b.Depth("dead") != 1 {
			t.Errorf("%d are left, %d are dead", b.Depth("q"), b.Depth("dead"))
		}
	})
}

func TestMessagesAreCopies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "q")
		m := message("a", "")
		if err := tr.Send(t.Context(), "q", m); err != nil {
			t.Fatal(err)
		}
		m.Payload[0] = 'x'
		b.Sent("q")[0].Payload[0] = 'y'
		received := make(chan string, 1)
		subscribe(t, tr, "s", "q", func(_ context.Context, in transport.Inbound) error {
			received <- string(in.Payload)
			in.Payload[0] = 'z'
			return nil
		})
		if got := <-received; got != `{"a":1}` {
			t.Errorf("received %s", got)
		}
		synctest.Wait()
		if got := string(b.Sent("q")[0].Payload); got != `{"a":1}` {
			t.Errorf("the broker has %s", got)
		}
	})
}

func TestRawBodiesAreCopies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "q")
		body := []byte("{")
		if err := b.PutRaw("q", body); err != nil {
			t.Fatal(err)
		}
		body[0] = 'x'
		subscribe(t, tr, "s", "q", func(_ context.Context, in transport.Inbound) error {
			in.Raw[0]++
			return transport.ErrReject
		})
		synctest.Wait()
		if got := string(b.Rejected("q")[0].Inbound.Raw); got != "{" {
			t.Errorf("the broker has %s", got)
		}
		b.Rejected("q")[0].Inbound.Raw[0] = 'y'
		if got := string(b.Rejected("q")[0].Inbound.Raw); got != "{" {
			t.Errorf("the broker has %s", got)
		}
	})
}

// A consumer that is stopped by force gives back its own messages only.
func TestForcedStopLeavesOtherConsumersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, one := connect(t, "q")
		two := join(t, b)
		ended := make(chan string, 10)
		proceed := make(chan struct{})
		hold := func(name string) func(context.Context, transport.Inbound) error {
			return func(ctx context.Context, _ transport.Inbound) error {
				select {
				case <-ctx.Done():
					ended <- name
				case <-proceed:
				}
				return ctx.Err()
			}
		}
		subscribe(t, one, "one", "q", hold("one"))
		// The first takes as many as it may, the second the rest.
		for range 4 {
			send(t, one, "q", "m", "")
		}
		synctest.Wait()
		subscribe(t, two, "two", "q", hold("two"))
		for range 2 {
			send(t, one, "q", "m", "")
		}
		synctest.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := one.Close(ctx); !errors.Is(err, transport.ErrTimeout) {
			t.Fatalf("got %v, want a timeout", err)
		}
		synctest.Wait()
		close(proceed)
		synctest.Wait()
		if len(ended) != 4 {
			t.Errorf("%d messages were taken away, want 4", len(ended))
		}
		for range len(ended) {
			if name := <-ended; name != "one" {
				t.Errorf("a message of consumer %s was taken away", name)
			}
		}
		if b.Depth("q") != 0 {
			t.Errorf("%d messages are left", b.Depth("q"))
		}
	})
}

func TestAwaitSeesEveryChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "q")
		awaited := make(chan error)
		go func() { awaited <- b.Await(t.Context(), func() bool { return len(b.Sent("q")) == 2 }) }()
		for range 2 {
			synctest.Wait()
			select {
			case err := <-awaited:
				t.Fatalf("await returns %v too early", err)
			default:
			}
			send(t, tr, "q", "a", "")
		}
		if err := <-awaited; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Await(ctx, func() bool { return false }); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the error of the context", err)
		}
	})
}

func TestWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	b := memtransport.NewBroker()
	b.Remove("q")
	if err := b.Put("q", message("a", "")); !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("put: %v", err)
	}
	if err := b.PutRaw("q", nil); !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("put raw: %v", err)
	}
	if b.Sent("q") != nil || b.Rejected("q") != nil || b.Depth("q") != 0 || b.Sending("q") != 0 {
		t.Error("a queue that does not exist has something in it")
	}
}

func TestPutIsReceivedButNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, tr := connect(t, "q")
		if err := b.Put("q", message("a", "k")); err != nil {
			t.Fatal(err)
		}
		// A name that exists keeps what is in it.
		b.Queue("q")
		b.Topic("q")
		var got log
		subscribe(t, tr, "s", "q", got.receive)
		synctest.Wait()
		if !slices.Equal(got.ids, []string{"a"}) || len(b.Sent("q")) != 0 {
			t.Errorf("received %v, sent %v", got.ids, b.Sent("q"))
		}
	})
}

func TestConnectNamesEverythingThatIsMissing(t *testing.T) {
	t.Parallel()
	b := memtransport.NewBroker()
	b.Queue("there")
	tr := b.Transport("memory")
	err := tr.Declare(transport.Topology{
		Destinations:  []string{"there", "out"},
		Subscriptions: []transport.Subscription{{ID: "s", Source: "in", DeadLetter: "dead"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = tr.Connect(t.Context())
	if !errors.Is(err, transport.ErrConfiguration) {
		t.Fatalf("got %v, want a configuration error", err)
	}
	for _, name := range []string{`"out"`, `"in"`, `"dead"`} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	if strings.Contains(err.Error(), `"there"`) {
		t.Errorf("%q names what exists", err)
	}
}
