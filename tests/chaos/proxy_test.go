package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands between one node and the servers, and is the network between them.
type proxy struct{ links []*link }

// link leads from a port of its own on 127.0.0.1 to one server.
type link struct {
	address, upstream string                  // the first is where the node connects to; it stays the same when the link is cut and joined
	weather           atomic.Pointer[weather] // nil: good

	mu       sync.Mutex
	listener net.Listener // nil: it is cut
	pairs    map[*pair]struct{}
	group    sync.WaitGroup
}

// pair is one connection of the node's, and the one to the server that belongs to it.
type pair struct {
	client, server *net.TCPConn
	ended          chan struct{}
	end            sync.Once
}

// weather is what is wrong with a network, until it is over.
type weather struct {
	silent          bool          // nothing arrives, and nothing is refused
	resets          bool          // connections are reset
	latency, jitter time.Duration // of each message
	rate            int           // bytes a second; 0: no limit
	over            chan struct{}
}

// newProxy leads from ports of its own to some addresses.
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

// cut ends all connections, and refuses new ones.
func (p *proxy) cut() {
	for _, l := range p.links {
		l.close()
	}
}

// poison makes the network bad, for the connections that there are, too.
func (p *proxy) poison(w weather) {
	w.over = make(chan struct{})
	for _, l := range p.links {
		l.weather.Store(&w)
		if w.resets {
			l.endAll()
		}
	}
}

// heal makes the network good again. Connections that only were slow go on.
func (p *proxy) heal() error {
	var over *weather
	for _, l := range p.links {
		if w := l.weather.Swap(nil); w != nil {
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

// open listens, unless it does.
func (l *link) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp4", l.address)
	if err != nil {
		return fmt.Errorf("join the network to %s: %w", l.upstream, err)
	}
	l.listener, l.address = listener, listener.Addr().String()
	l.group.Go(func() { l.accept(listener) })
	return nil
}

// close ends everything, and returns when it has ended.
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
	reset := l.weather.Load()
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

// connect joins a connection of the node's to the server, until one of both ends.
func (l *link) connect(listener net.Listener, client *net.TCPConn) {
	server, err := net.DialTimeout("tcp4", l.upstream, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p := &pair{client: client, server: server.(*net.TCPConn), ended: make(chan struct{})}
	l.mu.Lock()
	w := l.weather.Load()
	if cut := l.listener != listener; cut || w != nil && w.resets {
		p.close(!cut)
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

// pump carries what comes from one side to the other.
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

// carry takes the time that a message takes, and reports whether it arrives.
func (l *link) carry(p *pair, bytes int) bool {
	w := l.weather.Load()
	if w == nil {
		return true
	}
	if w.silent {
		select {
		case <-w.over: // what was silent does not come back
			p.close(false)
		case <-p.ended:
		}
		return false
	}
	delay := w.latency
	if w.jitter > 0 {
		delay += time.Duration(rand.Int64N(int64(2*w.jitter))) - w.jitter
	}
	if w.rate > 0 {
		delay += time.Second * time.Duration(bytes) / time.Duration(w.rate)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.over:
	case <-p.ended:
	}
	return true
}

// close ends both connections, by a reset if that is asked for.
func (p *pair) close(reset bool) {
	p.end.Do(func() {
		for _, conn := range []*net.TCPConn{p.client, p.server} {
			if reset {
				_ = conn.SetLinger(0)
			}
			_ = conn.Close()
		}
		close(p.ended)
	})
}
