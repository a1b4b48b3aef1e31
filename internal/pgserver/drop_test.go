package pgserver_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

func TestProxyDropsTheReplyToCommit(t *testing.T) {
	t.Parallel()
	t.Run("of the server", func(t *testing.T) {
		t.Parallel()
		direct := shared(t)
		testDropOfCommit(t, direct, direct)
	})
	t.Run("of PgBouncer", func(t *testing.T) {
		t.Parallel()
		direct := shared(t)
		testDropOfCommit(t, direct, bouncer(t, direct, pgserver.PgBouncerOptions{}).URL(databaseOf(t, direct)))
	})
}

// testDropOfCommit checks that the reply to a COMMIT is lost, but what was committed is there.
func testDropOfCommit(t *testing.T, direct, behind string) {
	t.Helper()
	p := proxy(t, hostOf(t, behind))
	through, err := p.URL(behind)
	if err != nil {
		t.Fatal(err)
	}
	reader := open(t, direct)
	reader.query(t, "CREATE TABLE facts (n int)")
	other := open(t, through)

	for _, n := range []string{"1", "2"} {
		client := open(t, through)
		client.query(t, "BEGIN")
		client.query(t, "INSERT INTO facts VALUES ("+n+")")
		dropped := p.DropReplyAfter(func(sent []byte) bool { return bytes.Contains(sent, []byte("COMMIT")) })
		other.query(t, "SELECT 1") // matches nothing
		select {
		case <-dropped:
			t.Fatal("the reply was dropped before the match")
		default:
		}
		before := p.Stats().ToClients
		if _, err := client.try("COMMIT"); err == nil {
			t.Fatal("the client knows that it has committed")
		}
		<-dropped
		if got := p.Stats().ToClients; got != before {
			t.Errorf("%d bytes of the reply came through", got-before)
		}
	}
	if got := reader.query(t, "SELECT n FROM facts ORDER BY n"); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the facts are %q, want 1 and 2", got)
	}
	other.query(t, "COMMIT") // it happens once
}

// What comes in two packets matches, and what follows the match does not reach the server.
func TestProxyMatchesAcrossPackets(t *testing.T) {
	t.Parallel()
	direct := shared(t)
	p := proxy(t, hostOf(t, direct))
	through, err := p.URL(direct)
	if err != nil {
		t.Fatal(err)
	}
	client := open(t, through)
	calls := make(chan []byte, 10)
	dropped := p.DropReplyAfter(func(sent []byte) bool {
		calls <- bytes.Clone(sent)
		return bytes.Contains(sent, []byte("TABLE facts"))
	})
	message := []byte("Q\x00\x00\x00\x1eCREATE TABLE facts(n int)\x00")
	if err := client.write(message[:12]); err != nil {
		t.Fatal(err)
	}
	if got := <-calls; !bytes.Equal(got, message[:12]) {
		t.Errorf("the first call got %q", got)
	}
	if err := client.write(message[12:]); err != nil {
		t.Fatal(err)
	}
	if got := <-calls; !bytes.Equal(got, message) {
		t.Errorf("the second call got %q, want all of the message", got)
	}
	<-dropped
	expectEnd(t, client.conn)
	if got := open(t, direct).query(t, "SELECT count(*) FROM facts"); !slices.Equal(got, []string{"0"}) {
		t.Errorf("the table has %q rows, want 0", got)
	}
}

// The server's reply may take long. A client that does not wait for it does not keep the server from its work.
func TestProxyDropsForAClientThatLeaves(t *testing.T) {
	t.Parallel()
	direct := shared(t)
	p := proxy(t, hostOf(t, direct))
	through, err := p.URL(direct)
	if err != nil {
		t.Fatal(err)
	}
	holder := open(t, direct)
	holder.query(t, "CREATE TABLE facts (n int)")
	holder.query(t, "BEGIN")
	holder.query(t, "LOCK TABLE facts")

	matched := make(chan struct{})
	dropped := p.DropReplyAfter(func(sent []byte) bool {
		found := bytes.Contains(sent, []byte("INSERT"))
		if found {
			close(matched)
		}
		return found
	})
	client := open(t, through)
	if err := client.send("INSERT INTO facts VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	<-matched
	if err := client.conn.Close(); err != nil {
		t.Fatal(err)
	}
	holder.query(t, "COMMIT")
	<-dropped
	if got := holder.query(t, "SELECT n FROM facts"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("the facts are %q, want 1", got)
	}
}

// A replaced search finds nothing, and nil ends it.
func TestProxyReplacesADrop(t *testing.T) {
	t.Parallel()
	p := proxy(t, echo(t, ""))
	client := dial(t, p.Address())
	always := func([]byte) bool { return true }
	replaced := p.DropReplyAfter(always)
	if none := p.DropReplyAfter(nil); none != nil {
		t.Error("no search has a channel")
	}
	send(t, client, "a")
	expect(t, client, "a")
	dropped := p.DropReplyAfter(always)
	send(t, client, "b")
	expectEnd(t, client)
	<-dropped
	select {
	case <-replaced:
		t.Error("the replaced search has found something")
	default:
	}
}
