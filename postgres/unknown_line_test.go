package postgres_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/internal/fleettest"
	"github.com/relaybus-go/relaybus/internal/pgserver"
	"github.com/relaybus-go/relaybus/postgres"
)

// line is a store whose connections go through a proxy, and a pool beside it that does not.
type line struct {
	t      *testing.T
	proxy  *pgserver.Proxy
	direct *pgxpool.Pool
	store  *postgres.Store
	// lease and poll are those of its workers: an hour, so that nothing in a test waits for the end of it, and 50 ms.
	lease, poll time.Duration
}

// onLine is the name of the connections that go through the proxy.
const onLine = "on the line"

func newLine(t *testing.T) *line {
	t.Helper()
	url := newShopURL(t)
	l := &line{t: t, direct: newPool(t, url), proxy: newProxy(t, url)}
	through, err := l.proxy.URL(url)
	if err != nil {
		t.Fatal(err)
	}
	pool := newPool(t, through, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = onLine })
	l.store = newStore(t, pool, postgres.Config{Logger: slog.New(slog.DiscardHandler)})
	return l
}

func newProxy(t *testing.T, url string) *pgserver.Proxy {
	t.Helper()
	address, err := pgserver.Address(url)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := pgserver.StartProxy(t.Context(), address)
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	return proxy
}

// prepared is the name under which pgx prepares a statement, as it stands in what executes it: not in the preparation.
func prepared(text string) []byte {
	digest := sha256.Sum256([]byte(text))
	return []byte("\x00stmtcache_" + hex.EncodeToString(digest[:24]) + "\x00")
}

// isCommit finds the COMMIT of a statement of the store's, which comes with it, or that of a transaction of the user's.
func (l *line) isCommit(of string) func(sent []byte) bool {
	l.t.Helper()
	if of == transaction {
		return func(sent []byte) bool { return bytes.Contains(sent, []byte("Q\x00\x00\x00\x0bcommit\x00")) }
	}
	text, ok := postgres.StatementTexts(l.store)[of]
	if !ok {
		l.t.Fatalf("the store has no statement %s", of)
	}
	statement, commit := prepared(text), prepared("commit")
	return func(sent []byte) bool { return bytes.Contains(sent, statement) && bytes.Contains(sent, commit) }
}

// transaction is one that the bus opens for the user.
const transaction = "transaction"

// loseReply makes the client lose the reply to the next COMMIT of the kind. With absent the server does not get the
// COMMIT either, which the client can't tell. The returned channel is closed when that has happened.
func (l *line) loseReply(of string, absent bool) <-chan struct{} {
	isCommit := l.isCommit(of)
	return l.proxy.DropReplyAfter(func(sent []byte) bool {
		if !isCommit(sent) {
			return false
		}
		if absent {
			l.terminate()
		}
		return true
	})
}

// terminate ends all connections through the proxy, and returns when the server has none of them.
func (l *line) terminate() {
	ctx := context.WithoutCancel(l.t.Context())
	for left := 1; left > 0; {
		err := l.direct.QueryRow(ctx, `SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = $1) t`, onLine).Scan(&left)
		if err != nil {
			l.t.Errorf("terminate connections: %v", err)
			return
		}
	}
}

func (l *line) happened(c <-chan struct{}) {
	l.t.Helper()
	select {
	case <-c:
	case <-time.After(fleettest.Patience):
		l.t.Fatal("no such COMMIT has come through the proxy")
	}
}

// publishDirect publishes an event, by another store that does not go through the proxy.
func (l *line) publishDirect(m relaybus.Message) {
	l.t.Helper()
	bus, err := relaybus.New(newStore(l.t, l.direct, postgres.Config{}), relaybus.Config{
		TransactionMode: relaybus.Optional, PublishOnly: true,
	})
	if err != nil {
		l.t.Fatalf("new bus: %v", err)
	}
	if err := bus.Publish(l.t.Context(), m); err != nil {
		l.t.Fatalf("publish: %v", err)
	}
}

// diary notes what a bus does.
type diary struct {
	mu       sync.Mutex
	attempts []int // the numbers of the executions, in their order
	said     []string
	errs     []error // of claims, settlements and renewals
	changed  chan struct{}
}

func newDiary() *diary { return &diary{changed: make(chan struct{}, 1)} }

func (d *diary) note(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *diary) say(what string)                { d.note(func() { d.said = append(d.said, what) }) }
func (d *diary) fail(err error)                 { d.note(func() { d.errs = append(d.errs, err) }) }
func (d *diary) executed(attempt int)           { d.note(func() { d.attempts = append(d.attempts, attempt) }) }
func (d *diary) OnSucceeded(relaybus.Attempt)   { d.say(fleettest.SaidSucceeded) }
func (d *diary) OnRetried(relaybus.Attempt)     { d.say(fleettest.SaidRetried) }
func (d *diary) OnBuried(relaybus.Attempt)      { d.say(fleettest.SaidBuried) }
func (d *diary) OnReleased(relaybus.Attempt)    { d.say(fleettest.SaidReleased) }
func (d *diary) OnLeaseLost(relaybus.Attempt)   { d.say(fleettest.SaidLost) }
func (d *diary) OnClaimed(c relaybus.Claimed)   { d.fail(c.Err) }
func (d *diary) OnSettled(c relaybus.StoreCall) { d.fail(c.Err) }
func (d *diary) OnRenewed(c relaybus.StoreCall) { d.fail(c.Err) }

func (d *diary) entries() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.said)
}

func (d *diary) executions() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.attempts)
}

func (d *diary) unknown() (n int) {
	for _, err := range d.errors() {
		if errors.Is(err, relaybus.ErrOutcomeUnknown) {
			n++
		}
	}
	return n
}

func (d *diary) errors() (errs []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.errs), func(err error) bool { return err == nil })
}

// await waits until it has said so many ends of attempts.
func (d *diary) await(t *testing.T, ends int) []string {
	t.Helper()
	d.awaitThat(t, func(said []string) bool { return len(said) >= ends })
	return d.entries()
}

// awaitThat waits until what it has said is enough.
func (d *diary) awaitThat(t *testing.T, enough func(said []string) bool) {
	t.Helper()
	patience := time.After(fleettest.Patience)
	for !enough(d.entries()) {
		select {
		case <-d.changed:
		case <-patience:
			t.Fatalf("I6: after %v, executions %v have ended with %v; errors: %v",
				fleettest.Patience, d.executions(), d.entries(), d.errors())
		}
	}
}

// start starts a worker on the line.
func (l *line) start(d *diary, handlers ...relaybus.Handler) *relaybus.Bus {
	l.t.Helper()
	bus, err := relaybus.New(l.store, relaybus.Config{
		LeaseDuration: cmp.Or(l.lease, time.Hour), PollInterval: cmp.Or(l.poll, 50*time.Millisecond), TransactionMode: relaybus.Optional,
		Retry:  relaybus.RetryPolicy{MaxAttempts: 3, Base: time.Millisecond, Cap: 5 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler), Hooks: []relaybus.Hook{d},
	})
	if err != nil {
		l.t.Fatalf("new bus: %v", err)
	}
	if err := bus.Subscribe(handlers...); err != nil {
		l.t.Fatalf("subscribe: %v", err)
	}
	if err := bus.Start(l.t.Context()); err != nil {
		l.t.Fatalf("start: %v", err)
	}
	l.t.Cleanup(func() {
		if err := bus.Stop(context.WithoutCancel(l.t.Context())); err != nil {
			l.t.Errorf("stop: %v", err)
		}
	})
	return bus
}

// warm lets a worker handle an event, so that it has its owner and lanes, and its statements are prepared.
func (l *line) warm(d *diary, m relaybus.Message) {
	l.t.Helper()
	l.publishDirect(m)
	if said := d.await(l.t, 1); said[0] != fleettest.SaidSucceeded {
		l.t.Fatalf("the first event has %s", said[0])
	}
	d.note(func() { d.said, d.attempts, d.errs = nil, nil, nil })
}

// settled waits until nothing is pending or running, and checks the completions.
func (l *line) settled(completions int) {
	l.t.Helper()
	fleettest.Await(l.t, l.store, nil)
	n := count(l.t, l.direct, `SELECT count(*) FROM relaybus_completions c CROSS JOIN LATERAL unnest(c.events)`)
	if n != completions {
		l.t.Errorf("%d completions, want %d", n, completions)
	}
}

func (l *line) count(text string) int {
	l.t.Helper()
	return count(l.t, l.direct, text)
}

// exists reports whether the event, and the row that was written with it, are there; it must be both or none.
func (l *line) exists(id string) bool {
	l.t.Helper()
	var event, row int
	err := l.direct.QueryRow(l.t.Context(), `SELECT (SELECT count(*) FROM relaybus_events WHERE id = $1),
		(SELECT count(*) FROM orders WHERE id = $1)`, id).Scan(&event, &row)
	if err != nil {
		l.t.Fatalf("look for %s: %v", id, err)
	}
	if event != row || event > 1 {
		l.t.Errorf("I2: %d events %s, and %d rows", event, id, row)
	}
	return event > 0
}

// place publishes an order and writes its row, in one transaction on the line.
func place(ctx context.Context, bus *relaybus.Bus, id string, before func(ctx context.Context, tx pgx.Tx) error) error {
	return bus.Transaction(ctx, func(ctx context.Context) error {
		if err := addOrder(ctx, id, true); err != nil {
			return err
		}
		if err := bus.Publish(ctx, fleettest.OrderPlaced.New(fleettest.OrderOf{ID: id}, relaybus.ID(id))); err != nil {
			return err
		}
		if before == nil {
			return nil
		}
		return before(ctx, postgres.Tx(ctx))
	})
}
