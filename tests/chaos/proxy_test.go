package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between one node and the servers, and is the network between them.
type proxy struct {
	mu      sync.Mutex // toxiproxy's own does not cover a change of several toxics
	proxies []*toxiproxy.Proxy
}

// newProxy leads from ports of its own on 127.0.0.1 to some addresses.
func newProxy(name string, upstreams ...string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := new(proxy)
	for _, upstream := range upstreams {
		one := toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)
		if err := one.Start(); err != nil {
			return nil, fmt.Errorf("start the proxy of %s: %w", name, err)
		}
		p.proxies = append(p.proxies, one)
	}
	return p, nil
}

// addresses are where the node connects to, in the order of the servers. They stay the same when the proxy is cut and
// joined again.
func (p *proxy) addresses() (all []string) {
	for _, one := range p.proxies {
		all = append(all, one.Listen)
	}
	return all
}

// leadsTo is where the node connects to for a server.
func (p *proxy) leadsTo(upstream string) string {
	return p.proxies[slices.IndexFunc(p.proxies, func(one *toxiproxy.Proxy) bool { return one.Upstream == upstream })].Listen
}

// cut ends all connections, and refuses new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.proxies {
		one.Stop()
	}
}

// drop ends all connections to one server. New ones come through.
func (p *proxy) drop(upstream string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.proxies {
		if one.Upstream != upstream || !one.Enabled {
			continue
		}
		one.Stop()
		if err := one.Start(); err != nil {
			return fmt.Errorf("join the network again: %w", err)
		}
	}
	return nil
}

// poison puts a toxic into both directions. The attributes are those of toxiproxy, in JSON.
func (p *proxy) poison(kind, attributes string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.proxies {
		for _, direction := range []string{"upstream", "downstream"} {
			toxic := fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": %s}`, kind, direction, attributes)
			if _, err := one.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
				return fmt.Errorf("make the network %s %s: %w", kind, direction, err)
			}
		}
	}
	return nil
}

// heal makes the network good again. Connections that only were slow go on.
func (p *proxy) heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.proxies {
		one.Toxics.ResetToxics(context.Background())
		if one.Enabled {
			continue
		}
		if err := one.Start(); err != nil {
			return fmt.Errorf("join the network again: %w", err)
		}
	}
	return nil
}
