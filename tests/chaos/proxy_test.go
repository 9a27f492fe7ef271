package chaos_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-go/millrace/tests/kit"
)

// proxy is the network between one node and the servers.
type proxy struct{ links []*link }

// link leads from a port of its own on 127.0.0.1 to one server.
type link struct {
	address    string // where the node connects to; it survives a disconnection
	upstream   string
	impairment atomic.Pointer[impairment] // nil: none

	mu       sync.Mutex
	listener net.Listener // nil: disconnected
	pairs    map[*pair]struct{}
	group    sync.WaitGroup
}

// pair is a connection of the node and the connection to the server that belongs to it.
type pair struct {
	client, server *net.TCPConn
	open           context.Context // until the pair is closed
	cancel         context.CancelFunc
}

// impairment is a fault of the network, until heal.
type impairment struct {
	silent bool                          // nothing arrives, and nothing is refused
	resets bool                          // connections are reset
	delay  func(bytes int) time.Duration // of each message; nil: none
	over   chan struct{}                 // closed by heal
}

// newProxy returns a proxy with a link to each upstream address.
func newProxy(upstreams ...string) (*proxy, error) {
	p := new(proxy)
	for _, upstream := range upstreams {
		l := &link{address: "127.0.0.1:0", upstream: upstream, pairs: make(map[*pair]struct{})}
		if err := l.open(); err != nil {
			return nil, err
		}
		p.links = append(p.links, l)
	}
	return p, nil
}

// disconnect ends all connections and refuses new ones.
func (p *proxy) disconnect() {
	for _, l := range p.links {
		l.close()
	}
}

// impair impairs new and existing connections.
func (p *proxy) impair(w impairment) {
	w.over = make(chan struct{})
	for _, l := range p.links {
		l.impairment.Store(&w)
		if w.resets {
			l.endAll()
		}
	}
}

// heal ends the disconnection or impairment. Connections that were only slow survive.
func (p *proxy) heal() error {
	var over *impairment
	for _, l := range p.links {
		if w := l.impairment.Swap(nil); w != nil {
			over = w
		}
		if err := l.open(); err != nil {
			return err
		}
	}
	if over != nil {
		close(over.over)
	}
	return nil
}

// open listens, unless the link listens already.
func (l *link) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp4", l.address)
	if err != nil {
		return fmt.Errorf("connect the network to %s: %w", l.upstream, err)
	}
	l.listener, l.address = listener, listener.Addr().String()
	l.group.Go(func() { l.accept(listener) })
	return nil
}

// close refuses new connections, ends the others, and returns when they have ended.
func (l *link) close() {
	l.mu.Lock()
	if l.listener != nil {
		_ = l.listener.Close()
		l.listener = nil
	}
	l.mu.Unlock()
	l.endAll()
	l.group.Wait()
}

// endAll ends all connections.
func (l *link) endAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	reset := l.impairment.Load()
	for p := range l.pairs {
		p.close(reset != nil && reset.resets)
	}
}

func (l *link) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		l.group.Go(func() { l.connect(listener, client.(*net.TCPConn)) })
	}
}

// connect carries a connection of the node to the server until either side ends.
func (l *link) connect(listener net.Listener, client *net.TCPConn) {
	server, err := net.DialTimeout("tcp4", l.upstream, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p := &pair{client: client, server: server.(*net.TCPConn)}
	p.open, p.cancel = context.WithCancel(context.Background())
	l.mu.Lock()
	w := l.impairment.Load()
	if closed := l.listener != listener; closed || w != nil && w.resets {
		p.close(!closed)
		l.mu.Unlock()
		return
	}
	l.pairs[p] = struct{}{}
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.pump(p, p.server, p.client) })
	both.Go(func() { l.pump(p, p.client, p.server) })
	both.Wait()
	l.mu.Lock()
	delete(l.pairs, p)
	l.mu.Unlock()
}

// pump carries messages from one side to the other.
func (l *link) pump(p *pair, to, from *net.TCPConn) {
	defer p.close(false)
	message := make([]byte, 16<<10)
	for {
		n, err := from.Read(message)
		if n > 0 && l.carry(p, n) {
			if _, err := to.Write(message[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// carry delays a message and reports whether it arrives.
func (l *link) carry(p *pair, bytes int) bool {
	w := l.impairment.Load()
	if w == nil {
		return true
	}
	if w.silent {
		select {
		case <-w.over: // messages were lost
			p.close(false)
		case <-p.open.Done():
		}
		return false
	}
	if w.delay != nil {
		kit.Pass(p.open, w.delay(bytes))
	}
	return true
}

// close ends both connections, by a reset if requested.
func (p *pair) close(reset bool) {
	for _, conn := range []*net.TCPConn{p.client, p.server} {
		if reset {
			_ = conn.SetLinger(0)
		}
		_ = conn.Close()
	}
	p.cancel()
}
