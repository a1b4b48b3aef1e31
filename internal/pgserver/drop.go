package pgserver

import (
	"net"
	"sync"
)

// unansweredLimit is how much of what a client has sent is kept to be matched.
const unansweredLimit = 1 << 20

// drop is one request for a reply to be dropped.
type drop struct {
	mu    sync.Mutex // one call of match at a time
	match func(clientBytes []byte) bool
	done  chan struct{}
}

// DropReplyAfter makes the client lose one reply: the server is sent all that match accepts, a COMMIT for example, and
// acts on it, but what it says then is swallowed and the client's connection closed. So the client can't know if the
// server has done it. It happens once; the returned channel is closed when the server is done and the connection is
// gone.
//
// match sees what a client has sent since the call and since the server last sent something to that client, the last
// MiB of it at most: a text that comes in two packets is found, too. There is one call of it at a time. What the same
// client sends after the match is not forwarded.
//
// A later call replaces one that has found nothing yet, whose channel stays open then; nil ends the search.
func (p *Proxy) DropReplyAfter(match func(clientBytes []byte) bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if match == nil {
		p.drop = nil
		return nil
	}
	p.drop = &drop{match: match, done: make(chan struct{})}
	return p.drop.done
}

// wanted returns the drop that looks for its match.
func (p *Proxy) wanted() *drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drop
}

// take tells if the drop is still wanted, and ends its search.
func (p *Proxy) take(d *drop) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drop != d {
		return false
	}
	p.drop = nil
	return true
}

// watch adds the chunk to what is unanswered and tells if that is the match. If so, the server's replies are swallowed
// from then on; the chunk must not have been forwarded before.
func (l *link) watch(chunk []byte) bool {
	d := l.proxy.wanted()
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.mu.Lock()
	if l.watching != d {
		l.watching, l.unanswered = d, nil
	}
	l.unanswered = append(l.unanswered, chunk...)
	l.unanswered = l.unanswered[max(0, len(l.unanswered)-unansweredLimit):]
	seen := l.unanswered
	l.mu.Unlock()

	if !d.match(seen) || !l.proxy.take(d) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swallowing = d
	return true
}

// isSwallowing tells if the match was found on this link.
func (l *link) isSwallowing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.swallowing != nil
}

// answered notes that the server has said something, and tells if that is to be swallowed.
func (l *link) answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered = nil
	return l.swallowing != nil
}

// swallow forwards no chunk. By the end of the client's stream, which it sends after the match, the server knows that
// there is nothing more to do: it ends the connection when it has done what was asked.
func (l *link) swallow(server net.Conn) error {
	select {
	case <-l.forwarded:
		return closeWrite(server)
	case <-l.closed:
		return net.ErrClosed
	}
}
