package chaos_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between one node and the server, and is the network between them.
type proxy struct {
	mu    sync.Mutex // toxiproxy's own does not cover a change of several toxics
	proxy *toxiproxy.Proxy
}

// newProxy leads from a port of its own on 127.0.0.1 to an address.
func newProxy(name, upstream string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{proxy: toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)}
	if err := p.proxy.Start(); err != nil {
		return nil, fmt.Errorf("start the proxy of %s: %w", name, err)
	}
	return p, nil
}

// address is where the node connects to. It stays the same when the proxy is cut and joined again.
func (p *proxy) address() string { return p.proxy.Listen }

// cut ends all connections, and refuses new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
}

// poison puts a toxic into both directions. The attributes are those of toxiproxy, in JSON.
func (p *proxy) poison(kind, attributes string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, direction := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": %s}`, kind, direction, attributes)
		if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return fmt.Errorf("make the network %s %s: %w", kind, direction, err)
		}
	}
	return nil
}

// heal makes the network good again. Connections that only were slow go on.
func (p *proxy) heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Toxics.ResetToxics(context.Background())
	if p.proxy.Enabled {
		return nil
	}
	if err := p.proxy.Start(); err != nil {
		return fmt.Errorf("join the network again: %w", err)
	}
	return nil
}
