package pgserver_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

// echo answers every byte with the prefix and the byte.
func echo(t *testing.T, prefix string) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				var b [1]byte
				for {
					if _, err := io.ReadFull(conn, b[:]); err != nil {
						return
					}
					if _, err := conn.Write(append([]byte(prefix), b[0])); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func proxy(t *testing.T, target string) *pgserver.Proxy {
	t.Helper()
	p, err := pgserver.StartProxy(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatalf("send %q: %v", text, err)
	}
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("received %q, %v, want %q", got[:n], err, want)
	}
}

func expectEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want the end of the connection", n, err)
	}
}

// expectSilence fails if something comes within a moment. A slow machine can only make it overlook something.
func expectSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want nothing", n, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()
	p := proxy(t, echo(t, "<"))
	first, second := dial(t, p.Address()), dial(t, p.Address())
	send(t, first, "ab")
	expect(t, first, "<a<b")
	send(t, second, "c")
	expect(t, second, "<c")

	// The client's end goes to the server, and the server's comes back.
	if tcp, ok := second.(*net.TCPConn); !ok || tcp.CloseWrite() != nil {
		t.Fatal("the client's end can't be sent")
	}
	expectEnd(t, second)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := p.Stats(), (pgserver.Stats{Accepted: 2, ToServer: 3, ToClients: 6}); got != want {
		t.Errorf("the statistics are %+v, want %+v", got, want)
	}
	expectEnd(t, first)
	if err := p.Admit(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Admit of a closed proxy: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	p := proxy(t, echo(t, ""))
	first, second := dial(t, p.Address()), dial(t, p.Address())
	for _, conn := range []net.Conn{first, second} {
		send(t, conn, "a")
		expect(t, conn, "a")
	}
	if open := p.Stats().Open; open != 2 {
		t.Errorf("%d connections are open, want 2", open)
	}
	p.Freeze() // which does not keep a connection from being cut
	send(t, first, "b")
	if n := p.Cut(); n != 2 {
		t.Errorf("%d connections were cut, want 2", n)
	}
	expectEnd(t, first)
	expectEnd(t, second)
	p.Thaw()
	third := dial(t, p.Address())
	send(t, third, "c")
	expect(t, third, "c")
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	p := proxy(t, echo(t, ""))
	old := dial(t, p.Address())
	send(t, old, "a")
	expect(t, old, "a")

	p.Refuse()
	p.Refuse()
	var dialer net.Dialer
	if conn, err := dialer.DialContext(t.Context(), "tcp", p.Address()); err == nil {
		t.Fatal("a new connection is accepted", conn.Close())
	}
	send(t, old, "b")
	expect(t, old, "b")

	for range 2 {
		if err := p.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fresh := dial(t, p.Address())
	send(t, fresh, "c")
	expect(t, fresh, "c")
}

func TestProxyFreezes(t *testing.T) {
	t.Parallel()
	p := proxy(t, echo(t, ""))
	old := dial(t, p.Address())
	send(t, old, "a")
	expect(t, old, "a")
	before := p.Stats()

	p.Freeze()
	p.Freeze()
	send(t, old, "b")
	fresh := dial(t, p.Address())
	send(t, fresh, "c")
	expectSilence(t, old)
	expectSilence(t, fresh)
	if got := p.Stats(); got.ToServer != before.ToServer || got.ToClients != before.ToClients {
		t.Errorf("the statistics were %+v and are %+v: something was forwarded", before, got)
	}
	p.Thaw()
	p.Thaw()
	expect(t, old, "b")
	expect(t, fresh, "c")
}

func TestProxySwitchesItsTarget(t *testing.T) {
	t.Parallel()
	p := proxy(t, echo(t, "1"))
	old := dial(t, p.Address())
	send(t, old, "a")
	expect(t, old, "1a")

	p.SetTarget(echo(t, "2"))
	fresh := dial(t, p.Address())
	send(t, fresh, "b")
	expect(t, fresh, "2b")
	send(t, old, "c")
	expect(t, old, "1c")
}

// A target that does not answer ends the client's connection.
func TestProxyHasNoServer(t *testing.T) {
	t.Parallel()
	gone := proxy(t, "")
	gone.Refuse()
	expectEnd(t, dial(t, proxy(t, gone.Address()).Address()))
}

func TestProxyIgnoresCancels(t *testing.T) {
	t.Parallel()
	p := proxy(t, echo(t, ""))
	cancel := string(framed(nil, []byte{0x04, 0xd2, 0x16, 0x2e, 0, 0, 0, 1, 0, 0, 0, 2}))
	conn := dial(t, p.Address())
	send(t, conn, cancel)
	expect(t, conn, cancel)

	p.IgnoreCancels()
	conn = dial(t, p.Address())
	send(t, conn, "abc"+cancel)
	expect(t, conn, "abc"+cancel) // not at the beginning
	conn = dial(t, p.Address())
	send(t, conn, cancel)
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a request to cancel was forwarded, and answered")
	}
}
