package pgserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
)

// Proxy is a TCP proxy on the loopback interface that makes the network in front of a server fail. It knows nothing of
// PostgreSQL's protocol, and so nothing of what is encrypted. The methods may be called from several goroutines.
type Proxy struct {
	address    string
	goroutines sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	target   string
	listener net.Listener // nil while new connections are refused
	links    map[*link]struct{}
	frozen   chan struct{} // closed by Thaw; nil while bytes are forwarded
	drop     *drop         // nil when no reply is to be dropped
	deaf     bool          // requests to cancel something end here
	stats    Stats
}

// Stats is what went through a [Proxy] so far.
type Stats struct {
	// Accepted counts the connections of clients, Open those that have not ended.
	Accepted, Open int
	// ToServer and ToClients count the bytes that were forwarded.
	ToServer, ToClients int64
}

// StartProxy starts a proxy in front of the address, which need not answer yet; [Address] takes it from a URL. The
// context bounds the start; the proxy's life ends with Close.
func StartProxy(ctx context.Context, target string) (*Proxy, error) {
	for try := 1; ; try++ {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		p := &Proxy{address: loopback(port), target: target, links: make(map[*link]struct{})}
		if err := p.Admit(ctx); err == nil {
			return p, nil
		} else if try == startTries {
			return nil, err
		}
	}
}

// Address returns the host and the port on which the proxy listens.
func (p *Proxy) Address() string { return p.address }

// URL returns the server's URL with the proxy's address in place of the server's.
func (p *Proxy) URL(serverURL string) (string, error) { return through(serverURL, p.address) }

// Stats returns what went through the proxy so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.stats
	stats.Open = len(p.links)
	return stats
}

// SetTarget makes new connections go to another address. Those that are open stay.
func (p *Proxy) SetTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Cut closes all connections on both sides and waits until they are gone. It returns how many there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.close()
	}
	for _, l := range links {
		<-l.ended
	}
	return len(links)
}

// IgnoreCancels makes the proxy take requests to cancel a statement and forward none, as for a server that comes too
// late with it. The client is told nothing of it, by no server.
func (p *Proxy) IgnoreCancels() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

func (p *Proxy) ignoresCancels() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deaf
}

// Refuse makes the system refuse new connections, as for a server that is down. Those that are open stay; a connection
// that comes at the same moment may be one of them.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopListening()
}

// stopListening is for a caller that holds the mutex.
func (p *Proxy) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Admit undoes Refuse. It fails when somebody else has taken the port meanwhile, or the proxy is closed.
func (p *Proxy) Admit(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("listen on the proxy's port: %w", os.ErrClosed)
	}
	if p.listener != nil {
		return nil
	}
	listener, err := listen(ctx, p.address)
	if err != nil {
		return fmt.Errorf("listen on the proxy's port: %w", err)
	}
	p.listener = listener
	life := context.WithoutCancel(ctx)
	p.goroutines.Go(func() { p.accept(life, listener) })
	return nil
}

// accept ends when the listener is closed.
func (p *Proxy) accept(ctx context.Context, listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.adopt(ctx, client)
	}
}

func (p *Proxy) adopt(ctx context.Context, client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close()
		return
	}
	p.stats.Accepted++
	l, target := newLink(p, client), p.target
	p.links[l] = struct{}{}
	p.goroutines.Go(func() { l.run(ctx, target) })
}

// Freeze stops the forwarding in both directions. Connections stay open, and new ones are accepted, as by a server
// whose machine hangs.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Thaw undoes Freeze: what came in meanwhile is forwarded.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// Close stops listening, closes all connections and waits until all is gone. A second call does nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.stopListening()
	p.mu.Unlock()
	p.Cut()
	p.goroutines.Wait()
	return nil
}
