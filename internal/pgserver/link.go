package pgserver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// dialLimit is how long the target may take to accept a connection, and so how long Close may wait for one.
const dialLimit = 5 * time.Second

// link is one client's connection through a [Proxy].
type link struct {
	proxy  *Proxy
	client net.Conn
	closed chan struct{} // closed when both sides are to be closed
	ended  chan struct{} // closed when the goroutines are gone

	mu     sync.Mutex
	server net.Conn // nil until the target has accepted
	// unanswered is what the client has sent since the server last said something, while replies is to be dropped.
	unanswered []byte
	watching   *drop
	// swallowing is the drop that has found its match here; forwarded is closed when the server has been sent it all.
	swallowing *drop
	forwarded  chan struct{}
}

func newLink(p *Proxy, client net.Conn) *link {
	return &link{
		proxy: p, client: client,
		closed: make(chan struct{}), ended: make(chan struct{}), forwarded: make(chan struct{}),
	}
}

// run forwards until both sides have ended, or one is broken.
func (l *link) run(ctx context.Context, target string) {
	defer l.end()
	dialer := net.Dialer{Timeout: dialLimit}
	server, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil || !l.connect(server) {
		return
	}
	var upstream sync.WaitGroup
	upstream.Go(func() { l.finish(l.toServer(server), server) })
	l.finish(l.toClient(server), l.client)
	upstream.Wait()
}

// connect keeps the server's connection to close it later. It tells if the link is still to live.
func (l *link) connect(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
	if l.isClosed() {
		_ = server.Close()
		return false
	}
	return true
}

func (l *link) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// close ends both directions.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return
	}
	close(l.closed)
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

func (l *link) end() {
	l.close()
	l.proxy.mu.Lock()
	delete(l.proxy.links, l)
	l.proxy.mu.Unlock()
	if l.swallowing != nil {
		close(l.swallowing.done)
	}
	close(l.ended)
}

// finish passes the end of one direction on to its receiver, or closes the link if it ended otherwise.
func (l *link) finish(err error, receiver net.Conn) {
	if !errors.Is(err, io.EOF) || !l.awaitThaw() || closeWrite(receiver) != nil {
		l.close()
	}
}

func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// awaitThaw returns when the proxy is not frozen. It tells if the link is still to live.
func (l *link) awaitThaw() bool {
	for {
		l.proxy.mu.Lock()
		frozen := l.proxy.frozen
		l.proxy.mu.Unlock()
		if frozen == nil {
			return !l.isClosed()
		}
		select {
		case <-frozen:
		case <-l.closed:
			return false
		}
	}
}

// toServer forwards what the client sends, up to what the server's reply to is to be dropped.
func (l *link) toServer(server net.Conn) error {
	first := true
	err := l.forward(l.client, func(chunk []byte) error {
		begins := first
		first = false
		if begins && isCancel(chunk) && l.proxy.ignoresCancels() {
			return net.ErrClosed
		}
		if l.isSwallowing() {
			return nil
		}
		matched := l.watch(chunk)
		l.proxy.count(0, len(chunk))
		_, err := server.Write(chunk)
		if matched {
			close(l.forwarded)
		}
		return err
	})
	if l.isSwallowing() {
		// The client has given up waiting for the reply. That must not keep the server from what it was sent.
		return io.EOF
	}
	return err
}

// isCancel tells if a connection that begins with the chunk is only there to cancel a statement of another one.
func isCancel(chunk []byte) bool {
	const length, code = 16, 80877102 // protocol 1234.5678
	return len(chunk) >= 8 && binary.BigEndian.Uint32(chunk) == length && binary.BigEndian.Uint32(chunk[4:]) == code
}

// toClient forwards what the server sends, or swallows it.
func (l *link) toClient(server net.Conn) error {
	swallowed := false
	err := l.forward(server, func(chunk []byte) error {
		switch {
		case swallowed:
			return nil
		case l.answered():
			swallowed = true
			return l.swallow(server)
		}
		l.proxy.count(len(chunk), 0)
		_, err := l.client.Write(chunk)
		return err
	})
	if l.isSwallowing() {
		return net.ErrClosed
	}
	return err
}

// forward hands each chunk from the sender on unless the proxy is frozen.
func (l *link) forward(from io.Reader, handOn func(chunk []byte) error) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !l.awaitThaw() {
				return net.ErrClosed
			}
			if err := handOn(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// count adds to the proxy's statistics. It comes before the bytes are sent: who has received them sees them counted.
func (p *Proxy) count(toClients, toServer int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.ToClients += int64(toClients)
	p.stats.ToServer += int64(toServer)
}
